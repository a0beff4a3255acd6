"""Queues and gangs on the real Kueue and the real scheduler: situation 27, and who starts when."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from rollplex.api.cluster import SchedulingSpec
from rollplex_operator.gang import Gang, group
from rollplex_operator.resources import COSCHEDULING_GROUPS, NATIVE_GROUPS, VOLCANO_GROUPS, Resource
from tests.cluster.conftest import new_namespace
from tests.cluster.control_plane import CRDS, ControlPlane
from tests.cluster.fake_kubelet import FakeKubelet
from tests.cluster.history import History
from tests.cluster.jobs import has_reason, is_true, on_nodes
from tests.cluster.kueue import MANIFESTS, make_queue, running_kueue
from tests.cluster.shared import SharedOperator
from tests.cluster.situation import Situation

ROOM_FOR_ONE = {"cpu": "4", "memory": "64Gi"}  # of two jobs of 2 nodes with 2 CPUs each
SIZE = {"cpusPerRank": 2}


@pytest.fixture(scope="module")
def gang_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane whose scheduler knows gangs, with Kueue beside it."""
    folder = tmp_path_factory.mktemp("gangs")
    gates, versions = "GenericWorkload=true", "scheduling.k8s.io/v1beta1=true"
    crds = [*CRDS.glob("*.yaml"), MANIFESTS / "podgroups.yaml"]
    plane = ControlPlane(folder, feature_gates=gates, runtime_config=versions, crds=crds)
    with plane, running_kueue(plane):
        for name, value in (("low", 10), ("high", 1000)):
            plane.client().create("priorityclasses", {"metadata": {"name": name}, "value": value})
        yield plane


@pytest.fixture(scope="module")
def gang_operator(gang_plane: ControlPlane) -> Iterator[SharedOperator]:
    """An operator that serves it."""
    with FakeKubelet(gang_plane) as kubelet, History(gang_plane) as history:
        kubelet.add_nodes("node", 4)
        operator = SharedOperator(gang_plane, kubelet, history)
        yield operator
        operator.stop()


@pytest.fixture
def gangs(gang_plane: ControlPlane, gang_operator: SharedOperator) -> Iterator[Situation]:
    """A namespace there, with an operator."""
    situation = gang_operator.situation(new_namespace(gang_plane))
    yield situation
    gang_operator.check(situation)


def queued(situation: Situation, name: str, priority: str | None = None) -> None:
    scheduling = {"queue": situation.namespace, **({"priorityClassName": priority} if priority else {})}
    situation.create(name, scheduling=scheduling, hardware=SIZE, runPolicy={"restart": "newPods"})


def test_kueue_starts_one_job_where_one_fits(gangs: Situation) -> None:
    make_queue(gangs.client, gangs.namespace, ROOM_FOR_ONE)
    queued(gangs, "first")
    gangs.wait("first", "Running")
    queued(gangs, "second")
    job = gangs.wait("second", has_reason("Admitted", "Queued"))
    assert job["status"]["phase"] == "Pending"
    time.sleep(2.0)
    assert all(pod["spec"].get("schedulingGates") for pod in gangs.pods("second"))
    gangs.complete("first")
    gangs.wait("first", "Complete")
    gangs.wait("second", "Running")
    assert gangs.status("second").get("restarts", 0) == 0
    assert gangs.made("second") == 2


def test_kueue_starts_the_more_important_job_first(gangs: Situation) -> None:
    make_queue(gangs.client, gangs.namespace, ROOM_FOR_ONE)
    queued(gangs, "first", "low")
    gangs.wait("first", "Running")
    queued(gangs, "modest", "low")
    gangs.wait("modest", has_reason("Admitted", "Queued"))
    queued(gangs, "urgent", "high")
    gangs.wait("urgent", has_reason("Admitted", "Queued"))
    gangs.complete("first")
    gangs.wait("urgent", "Running")
    assert gangs.status("modest")["phase"] == "Pending"
    gangs.complete("urgent")
    gangs.wait("modest", "Running")


def test_kueue_evicts_a_job_which_waits_and_goes_on(gangs: Situation) -> None:
    make_queue(gangs.client, gangs.namespace, ROOM_FOR_ONE, preemption="LowerPriority")
    queued(gangs, "modest", "low")
    gangs.wait("modest", "Running")
    queued(gangs, "urgent", "high")
    gangs.wait("urgent", "Running")
    gangs.wait("modest", has_reason("Admitted", "Queued"))
    status = gangs.status("modest")
    assert (status["restarts"], status.get("restartsCountedTowardsMax", 0)) == (1, 0)
    gangs.complete("urgent")
    gangs.wait_attempt(1, "modest")
    assert gangs.made("modest") == 4


def test_kueue_admits_the_pods_of_a_restart(gangs: Situation) -> None:
    make_queue(gangs.client, gangs.namespace, ROOM_FOR_ONE)
    queued(gangs, "job")
    gangs.wait("job", "Running")
    for attempt in (1, 2):
        gangs.fail()
        gangs.wait_attempt(attempt)
    assert gangs.made() == 6
    gangs.client.delete("rollplexjobs", "job")
    gangs.wait_for("its pods are gone", lambda: not gangs.pods())
    queued(gangs, "next")
    gangs.wait("next", "Running")


def test_suspending_gives_the_quota_back(gangs: Situation) -> None:
    make_queue(gangs.client, gangs.namespace, ROOM_FOR_ONE)
    queued(gangs, "first")
    gangs.wait("first", "Running")
    queued(gangs, "second")
    gangs.edit("first", runPolicy={"suspend": True})
    gangs.wait("first", "Suspended")
    gangs.wait("second", "Running")


def test_case_27_native_gang_binds_all_or_none(gangs: Situation) -> None:
    own = f"{gangs.namespace}-own"
    gangs.kubelet.add_nodes(own, 2, {"pods": "1"})
    gangs.create(nodes=3, podTemplate=on_nodes(own), runPolicy={"restart": "newPods"})
    gangs.wait("job", has_reason("Running", "Unschedulable"))
    time.sleep(2.0)
    assert [pod["spec"].get("nodeName") for pod in gangs.pods()] == [None] * 3
    assert gangs.status()["gang"] == "native"
    gangs.kubelet.add_nodes(f"{own}-more", 1, {"pods": "1"}, {"rollplex-tests/nodes": own})
    gangs.wait("job", "Running")


def test_case_27_gang_objects_come_before_pods_and_live_as_long(gangs: Situation) -> None:
    gangs.start(runPolicy={"restart": "newPods"})
    assert_group(gangs, 0)
    gangs.fail()
    gangs.wait_attempt(1)
    assert_group(gangs, 1)
    gangs.complete()
    gangs.wait("job", "Complete")
    created = [
        write["objectRef"]["resource"]
        for write in sorted(gangs.writes(), key=lambda write: str(write["requestReceivedTimestamp"]))
        if write["objectRef"]["resource"] in ("podgroups", "pods")
        and write["verb"] in ("create", "patch")
        and "dryRun" not in write["requestURI"]
    ]
    assert created == ["podgroups", "pods", "pods"] * 2


def assert_group(gangs: Situation, attempt: int) -> None:
    name = f"job-{attempt}"

    def only() -> bool:
        found = [group["metadata"]["name"] for group in gangs.client.list("podgroups")]
        assert found == [name], found
        return True

    gangs.wait_for(f"the only group is {name}", only, 20)
    assert {pod["spec"]["schedulingGroup"]["podGroupName"] for pod in gangs.pods()} == {name}


GANGS: dict[Gang, Resource] = {
    "native": NATIVE_GROUPS,
    "coscheduling": COSCHEDULING_GROUPS,
    "volcano": VOLCANO_GROUPS,
}


@pytest.mark.parametrize("gang", GANGS)
def test_gang_objects_are_as_their_definitions_say(gangs: Situation, gang: Gang) -> None:
    spec = SchedulingSpec(gang=gang, queue="team-a", priority_class_name="high")
    wanted = group(gang, spec, "job", attempt=0, nodes=2)
    assert wanted is not None
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    kept = gangs.client.request("POST", GANGS[gang].path(gangs.namespace), wanted, **query)
    assert {**kept["spec"], **wanted["spec"]} == kept["spec"]


@pytest.mark.parametrize("gang", ["coscheduling", "volcano"])
def test_gangs_of_other_schedulers_live_as_long_as_their_attempt(gangs: Situation, gang: Gang) -> None:
    """Their schedulers are not here: pods of coscheduling go to the one that is, those of Volcano wait."""

    def groups() -> dict[str, int]:
        found = gangs.client.request("GET", GANGS[gang].path(gangs.namespace))["items"]
        return {each["metadata"]["name"]: each["spec"]["minMember"] for each in found}

    gangs.create(scheduling={"gang": gang}, runPolicy={"restart": "newPods"})
    gangs.wait("job", is_true("PodsCreated"))
    assert groups() == {"job-0": 2}
    gangs.client.delete("pods", "job-1", grace=0)
    gangs.wait("job", lambda job: job["status"]["attempt"] == 1, is_true("PodsCreated"))
    gangs.wait_for("the first attempt's group is gone", lambda: groups() == {"job-1": 2})
    assert gangs.status()["gang"] == gang
