"""Which pinning and allocation ``auto`` becomes, and which wishes are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollplex.api.cluster import NumaSpec
from rollplex_operator import numa

CLASS = "gpu.nvidia.com"


def node(ranks: int = 8, numa_nodes: int = 2, tensor: int = 1, offered: bool = False, gpus: bool = True) -> numa.Node:
    return numa.Node(ranks, numa_nodes, tensor, CLASS if gpus else None, offered)


@pytest.mark.parametrize(
    ("wish", "on", "expected"),
    [
        # a device class is offered: containers, whatever the groups
        (NumaSpec(), node(tensor=8, offered=True), ("container", "dra", 2)),
        # none is: containers only where no group spans them
        (NumaSpec(), node(tensor=4), ("container", "devicePlugin", 2)),
        (NumaSpec(), node(tensor=8), ("process", "devicePlugin", 1)),
        (NumaSpec(), node(ranks=6, tensor=2), ("process", "devicePlugin", 1)),
        (NumaSpec(), node(ranks=1), ("container", "devicePlugin", 1)),
        # as asked for
        (NumaSpec(gpu_allocation="devicePlugin"), node(tensor=8, offered=True), ("process", "devicePlugin", 1)),
        (NumaSpec(pinning="process"), node(offered=True), ("process", "dra", 1)),
        (NumaSpec(pinning="none"), node(), ("none", "devicePlugin", 1)),
        (
            NumaSpec(pinning="container", gpu_allocation="dra"),
            node(offered=True, numa_nodes=8),
            ("container", "dra", 8),
        ),
        # no GPUs: nothing to allocate, and memory is shared whatever the groups
        (NumaSpec(), node(gpus=False, tensor=8), ("container", "none", 2)),
        # more GPUs than a claim holds
        (NumaSpec(), node(ranks=64, offered=True), ("container", "devicePlugin", 2)),
    ],
)
def test_choose(wish: NumaSpec, on: numa.Node, expected: tuple[str, str, int]) -> None:
    assert numa.choose(wish, on) == expected


@pytest.mark.parametrize(
    ("wish", "on", "field", "says"),
    [
        (NumaSpec(gpu_allocation="dra"), node(), "gpuAllocation", f"DeviceClass {CLASS}"),
        (NumaSpec(gpu_allocation="dra"), node(ranks=33, offered=True), "gpuAllocation", "at most 32"),
        (NumaSpec(gpu_allocation="dra"), node(gpus=False), "gpuAllocation", "no GPUs"),
        (NumaSpec(pinning="container"), node(tensor=8), "pinning", "pinning process"),
        (NumaSpec(pinning="container"), node(ranks=6, tensor=2), "pinning", "span"),
    ],
)
def test_what_cannot_be_had_is_refused(wish: NumaSpec, on: numa.Node, field: str, says: str) -> None:
    [fault] = numa.faults(wish, on)
    assert fault.path == f"spec.numa.{field}"
    assert says in fault.message


@given(
    st.builds(node, st.integers(1, 64), st.integers(1, 16), st.sampled_from([1, 2, 4, 8]), st.booleans(), st.booleans())
)
def test_auto_can_always_be_had(on: numa.Node) -> None:
    assert list(numa.faults(NumaSpec(), on)) == []


@given(st.integers(1, 64), st.data())
def test_shares_add_up_and_differ_by_one_at_most(ranks: int, data: st.DataObject) -> None:
    shares = numa.shares(ranks, data.draw(st.integers(1, ranks)))
    assert sum(shares) == ranks
    assert 1 <= min(shares) <= max(shares) <= min(shares) + 1


@given(st.integers(1, 32), st.data())
def test_a_claim_has_a_gpu_for_each_rank(ranks: int, data: st.DataObject) -> None:
    containers = data.draw(st.integers(1, min(ranks, 16)))
    requests = numa.claim_spec(ranks, containers, CLASS)["devices"]["requests"]
    assert len(requests) == containers
    if containers == 1:
        assert requests[0]["exactly"]["count"] == ranks
    else:
        for request, share in zip(requests, numa.shares(ranks, containers), strict=True):
            assert [choice["count"] for choice in request["firstAvailable"]] == [share, share]
