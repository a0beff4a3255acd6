"""The situations that broke other operators, by their number, as far as they are a matter of deciding."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest

from rollplex_operator.decision import Decision
from rollplex_operator.names import METRICS_PORT
from rollplex_operator.observation import Progress, Server
from rollplex_operator.pods import IN_PLACE_FEATURE
from tests.unit.operator.simulation import TARGET, Cluster
from tests.unit.operator.situations import IN_PLACE, again, counters, reason, started

# ---- suspension


def test_suspended_pods_go_and_the_next_attempt_is_no_restart() -> None:
    cluster = started()
    cluster.edit(suspend=True)
    cluster.settle()
    assert cluster.phase == "Suspending"
    for name in cluster.pods:
        cluster.end(name, 143, json.dumps({"step": 4, "checkpoint": 4}))
    cluster.settle()
    cluster.finish_deletions()
    cluster.settle()
    assert cluster.phase == "Suspended"
    assert (cluster.status["checkpoint"]["step"], cluster.status["step"]) == (4, 4)
    cluster.edit(suspend=False)
    again(cluster)
    assert (cluster.phase, counters(cluster)) == ("Running", (1, 0, 0))


def test_suspending_goes_on_where_the_spec_became_invalid() -> None:
    cluster = started()
    cluster.edit(suspend=True)
    cluster.settle()
    assert cluster.job is not None
    spec = {**cluster.job.document["spec"], "nodes": 0}
    cluster.job = replace(cluster.job, document={**cluster.job.document, "spec": spec}, generation=9)
    cluster.settle()
    cluster.finish_deletions()
    cluster.settle()
    assert (cluster.phase, reason(cluster, "Admitted")) == ("Suspended", "InvalidSpec")


@pytest.mark.parametrize("kind", ["PodDisruptionBudget", "PodGroup"])
def test_suspended_jobs_hold_nothing_but_their_files(kind: str) -> None:
    """A PodGroup without pods keeps its place in Volcano's queue."""
    cluster = Cluster(2, Server(native_gang=True), disruptionBudget=True)
    cluster.settle()
    cluster.start()
    cluster.settle()
    assert kind in {key[0] for key in cluster.children}
    cluster.edit(suspend=True)
    cluster.settle()
    cluster.finish_deletions()
    cluster.settle()
    assert cluster.phase == "Suspended"
    assert kind not in {key[0] for key in cluster.children}


# ---- 27, 28


def test_case_27_gang_objects_come_first_and_outlive_their_pods() -> None:
    cluster = Cluster(2, Server(native_gang=True))
    decision = cluster.reconcile()
    assert "PodGroup" in {each["kind"] for each in decision.apply}
    cluster.start()
    cluster.settle()
    cluster.end("job-1", 1)
    cluster.settle()
    assert ("PodGroup", "job-0") in cluster.children
    again(cluster)
    assert [key for key in cluster.children if key[0] == "PodGroup"] == [("PodGroup", "job-1")]


@pytest.mark.parametrize("ahead", [0.0, 300.0, -300.0])
def test_case_28_rejected_pods_are_replaced_later_and_later(ahead: float) -> None:
    """``ahead``: seconds of the server's clock, which says when a pod was created, before the operator's."""
    cluster = Cluster(2)
    made: list[float] = []
    for _ in range(1500):
        if cluster.reconcile().create:
            made.append(cluster.now)
        pod = cluster.pods.get("job-1")
        if pod is not None and pod.phase == "Pending":
            why = "Resources cannot be allocated with Topology locality"
            cluster.change("job-1", phase="Failed", node="node-1", reason="TopologyAffinityError", message=why)
            cluster.change("job-1", created=cluster.now + ahead)
        cluster.pass_time(0.1)
    waits = [after - before for before, after in itertools.pairwise(made)]
    assert waits == sorted(waits)
    assert 4 <= len(made) <= 10
    message = cluster.condition("PodsCreated")["message"]
    assert reason(cluster, "PodsCreated") == "RejectedByNode"
    assert "node-1" in message
    assert "TopologyAffinityError" in message
    cluster.pass_time(400.0)
    again(cluster)
    assert (cluster.phase, counters(cluster)) == ("Running", (0, 0, 0))


def test_case_28_a_kubelet_that_started_anew_refuses_a_pod_that_ran() -> None:
    """A node with devices that was rebooted: its report leaves out that the containers ran."""
    cluster = started()
    containers = tuple(replace(each, running=False, ready=False) for each in cluster.pods["job-1"].containers)
    cluster.change("job-1", phase="Failed", reason="UnexpectedAdmissionError", containers=containers)
    cluster.settle()
    assert (cluster.phase, counters(cluster)) == ("Restarting", (1, 1, 1))
    again(cluster)
    assert (cluster.phase, cluster.created) == ("Running", 4)


# ---- progress


def test_progress_is_written_every_thirty_seconds_at_most() -> None:
    cluster = started()
    head = cluster.pods["job-0"]
    cluster.change("job-0", ip=f"127.0.0.1:{METRICS_PORT}")
    writes = 0
    for second in range(120):
        cluster.progress = Progress(cluster.now, head.uid, {"step": min(second, TARGET - 1), "reward": second / 7})
        writes += cluster.reconcile().writes
        cluster.pass_time(1.0)
    assert 3 <= writes <= 5


def test_an_unreadable_schema_is_waited_for() -> None:
    cluster = started()
    cluster.server = Server(schema_fault="the installed CustomResourceDefinition lacks status.attempt")
    cluster.end("job-0", 1)
    cluster.settle()
    assert reason(cluster, "Admitted") == "SchemaTooOld"
    assert cluster.created == 2


def test_case_12_a_drained_pod_that_went_at_once_does_not_count() -> None:
    cluster = started()
    cluster.change("job-1", disrupted="EvictionByEvictionAPI", deleting_since=cluster.now)
    cluster.finish_deletions()
    again(cluster)
    assert counters(cluster) == (1, 1, 0)


def test_last_words_of_a_pod_that_went_at_once_complete_the_job() -> None:
    cluster = started()
    cluster.complete()
    for name in list(cluster.pods):
        cluster.vanish(name)
    cluster.settle()
    assert cluster.phase == "Complete"
    assert cluster.condition("PodsCreated")["status"] == "True"
    assert not cluster.settle().writes


# ---- restarts in place that kubelets cannot do

CANNOT = "0/2 nodes are available: 2 node(s) didn't match Pod's required features."


def asks_in_place(decision: Decision) -> set[bool]:
    """Whether the pods that are made ask for it."""
    return {"restartPolicyRules" in pod["spec"]["containers"][0] for pod in decision.create}


def test_pods_that_no_kubelet_can_restart_in_place_are_made_anew_without_it() -> None:
    cluster = Cluster(2, IN_PLACE)
    assert asks_in_place(cluster.reconcile()) == {True}
    cluster.settle()
    cluster.change("job-1", unschedulable=CANNOT)
    cluster.reconcile()
    assert (counters(cluster), cluster.status["restart"]) == ((1, 0, 0), "newPods")
    decisions = [cluster.reconcile() for _ in range(4)]
    assert [asks_in_place(each) for each in decisions if each.create] == [{False}]
    again(cluster)
    assert cluster.phase == "Running"
    assert IN_PLACE_FEATURE in cluster.condition("PodsCreated")["message"]
    cluster.end("job-0", 1)
    again(cluster)
    assert (counters(cluster), cluster.status["restart"]) == ((2, 1, 1), "newPods")


def test_a_job_that_goes_on_after_a_suspension_asks_for_restarts_in_place_again() -> None:
    cluster = Cluster(2, IN_PLACE)
    cluster.settle()
    cluster.change("job-1", unschedulable=CANNOT)
    again(cluster)
    cluster.edit(suspend=True)
    cluster.settle()
    cluster.finish_deletions()
    cluster.settle()
    cluster.edit(suspend=False)
    assert asks_in_place(cluster.reconcile()) == {True}


@pytest.mark.parametrize(
    ("message", "policy"), [("0/2 nodes are available: 2 Insufficient cpu.", {}), (CANNOT, {"restart": "newPods"})]
)
def test_pods_that_wait_for_something_else_stay(message: str, policy: dict[str, str]) -> None:
    cluster = Cluster(2, IN_PLACE, **policy)
    cluster.settle()
    cluster.change("job-1", unschedulable=message)
    cluster.settle()
    assert (cluster.created, counters(cluster)) == (2, (0, 0, 0))
    assert reason(cluster, "Running") == "Unschedulable"
