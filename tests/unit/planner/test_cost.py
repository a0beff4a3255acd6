"""Seconds follow operations over rate and bytes over bandwidth."""

from typing import Any

import pytest

from rollplex.planner.cost import Cost
from rollplex.planner.size import size_of
from tests.unit.planner.workloads import hardware, workload

# no latencies, one rank: what is left are the floors
BARE = {"collective_seconds": 0.0, "engine_step_seconds": 0.0, "pass_efficiency": 1.0, "decode_efficiency": 1.0}


def bare(**changes: Any) -> Any:
    work = workload(ranks=1, train_tensor=1, rollout_tensor=1, **changes)
    return work, hardware(**BARE), Cost(work, hardware(**BARE))


def test_a_prefix_costs_two_operations_a_weight_and_its_attention() -> None:
    work, device, cost = bare(prompt_tokens=1001)
    size = size_of(work.shape)
    width = work.shape.layers * work.shape.heads * work.shape.head_dim
    operations = 2 * size.layer_matrices * 1000 + 4 * width * 1000**2 / 2
    assert cost.prefix() == pytest.approx(operations / device.flops)
    assert cost.prefix_backward() == pytest.approx(2 * cost.prefix())


def test_an_unsplit_suffix_costs_its_prompts_too() -> None:
    _, _, cost = bare(prompt_tokens=1001)
    split, whole = cost.suffix((10, 10), True), cost.suffix((10, 10), False)
    assert whole - split == pytest.approx(2 * cost.prefix(), rel=1e-6)


def test_decode_reads_the_weights_once_a_step_and_every_sequences_keys() -> None:
    work, device, cost = bare()
    size = size_of(work.shape)
    read = 2 * (size.layer_matrices + size.head) + 2 * size.kv_values * 5000
    operations = 2 * (size.layer_matrices + size.head) * 8
    assert cost.engine_step(8, 5000, 0) == pytest.approx(read / device.hbm_rate + operations / device.flops)


def test_the_updates_bytes_cross_the_host_link_each_way_at_once() -> None:
    work, device, cost = bare()
    size = size_of(work.shape)
    assert cost.update_with(True) == pytest.approx(12 * (size.language + size.vision) / device.host_rate)
    # 268 M parameters took 71 ms
    assert 12 * 268e6 / device.host_rate == pytest.approx(0.071, rel=0.02)


def test_memory_of_a_far_numa_node_is_slower_where_ranks_are_not_pinned() -> None:
    work = workload()
    near, far = (Cost(work, hardware(numa_near=near, far_factor=0.5)).update_with(True) for near in (True, False))
    assert far > near


def test_recomputing_adds_the_forwards_again() -> None:
    work = workload()
    kept, again = Cost(work, hardware()), Cost(work, hardware(), recompute=True)
    assert again.prefix_backward() == pytest.approx(kept.prefix_backward() + kept.prefix())
    assert kept.second_forwards() > 0
