"""Who sees to it that all pods start or none, and what the pods carry for it."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollplex.api.cluster import SchedulingSpec
from rollplex_operator import gang
from rollplex_operator.observation import Server
from tests.unit.operator.child_jobs import EVERYTHING, UID


@pytest.mark.parametrize(
    ("spec", "nodes", "server", "expected"),
    [
        (SchedulingSpec(), 4, EVERYTHING, "native"),
        (SchedulingSpec(), 1, EVERYTHING, "none"),  # one pod starts or does not
        (SchedulingSpec(), 4, Server(coscheduling=True, volcano=True), "none"),
        (SchedulingSpec(queue="team"), 4, EVERYTHING, "kueue"),
        (SchedulingSpec(gang="volcano", queue="team"), 4, EVERYTHING, "volcano"),
        (SchedulingSpec(gang="none"), 4, EVERYTHING, "none"),
    ],
)
def test_choose(spec: SchedulingSpec, nodes: int, server: Server, expected: str) -> None:
    assert gang.choose(spec, nodes, server) == expected
    assert list(gang.faults(spec, nodes, server)) == []


@pytest.mark.parametrize(
    ("spec", "server", "field", "says"),
    [
        (SchedulingSpec(queue="team"), Server(), "queue", "Kueue"),
        (SchedulingSpec(gang="native"), Server(), "gang", "GenericWorkload"),
        (SchedulingSpec(gang="coscheduling"), Server(), "gang", "scheduling.x-k8s.io"),
        (SchedulingSpec(gang="volcano"), Server(), "gang", "Volcano"),
    ],
)
def test_what_the_server_lacks_is_said(spec: SchedulingSpec, server: Server, field: str, says: str) -> None:
    [fault] = gang.faults(spec, 4, server)
    assert fault.path == f"spec.scheduling.{field}"
    assert says in fault.message


def wired(kind: Any, attempt: int = 3) -> gang.Wiring:
    return gang.wiring(kind, SchedulingSpec(queue="team"), "job", UID, attempt, 4)


def test_kueue_group_is_of_one_attempt_of_one_job() -> None:
    wiring = wired("kueue")
    assert wiring.labels == {gang.KUEUE_QUEUE: "team", gang.KUEUE_GROUP: "job-0f3a1-3"}
    assert wiring.annotations == {gang.KUEUE_COUNT: "4", gang.KUEUE_RETRIABLE: "false"}
    other = gang.wiring("kueue", SchedulingSpec(queue="team"), "job", UID.replace("0f3a1", "aaaaa"), 3, 4)
    assert (
        len(
            {
                wiring.labels[gang.KUEUE_GROUP],
                wired("kueue", 4).labels[gang.KUEUE_GROUP],
                other.labels[gang.KUEUE_GROUP],
            }
        )
        == 3
    )


@pytest.mark.parametrize("kind", ["native", "coscheduling", "volcano"])
def test_pods_name_the_group_that_is_made(kind: Any) -> None:
    group = gang.group(kind, SchedulingSpec(queue="team", priority_class_name="high"), "job", 3, 4)
    assert group is not None
    wiring, name = wired(kind), group["metadata"]["name"]
    joined = {
        "native": wiring.spec.get("schedulingGroup", {}).get("podGroupName"),
        "coscheduling": wiring.labels.get(gang.COSCHEDULING_GROUP),
        "volcano": wiring.annotations.get(gang.VOLCANO_GROUP),
    }
    assert joined[kind] == name == "job-3"
    least = group["spec"].get("minMember") or group["spec"]["schedulingPolicy"]["gang"]["minCount"]
    assert least == 4


@given(st.sampled_from(get_args(gang.Gang)), st.integers(1, 99999))
def test_what_is_set_on_pods_is_reserved(kind: Any, attempt: int) -> None:
    wiring = gang.wiring(kind, SchedulingSpec(queue="q" * 63), "j" * 50, UID, attempt, 4096)
    assert wiring.labels.keys() | wiring.annotations.keys() <= gang.RESERVED
    assert all(len(value) <= 63 for value in wiring.labels.values())
