"""The situations that broke other operators, by their number, as far as they are a matter of deciding."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from rollplex_operator.names import EXIT_BAD_JOB, EXIT_RUN_STOPPED
from rollplex_operator.observation import ContainerView
from tests.unit.operator.simulation import TARGET, Cluster
from tests.unit.operator.situations import counters, reason, started

# ---- 13: dead nodes


@pytest.mark.parametrize(("ready", "forced"), [(False, True), (True, False), (None, False)])
def test_case_13_only_pods_of_dead_nodes_are_forced(ready: bool | None, forced: bool) -> None:
    cluster = started(terminationGraceSeconds=5)
    cluster.end("job-0", 1)
    cluster.settle()
    for _ in range(120):
        cluster.pass_time(1.0)
        if ready is not None:
            cluster.nodes_ready = dict.fromkeys(cluster.decide().ask_nodes, ready) or cluster.nodes_ready
        decision = cluster.reconcile()
        if ready is False and reason(cluster, "PodsCreated") == "NodeLost":
            assert "node-1" in cluster.condition("PodsCreated")["message"]
        assert forced or not any(each.grace_seconds == 0 for each in decision.delete)
    assert (cluster.created == 4) == forced


def test_case_13_forced_once_where_a_finalizer_keeps_the_pod() -> None:
    cluster = started(terminationGraceSeconds=5)
    cluster.end("job-0", 1)
    cluster.settle()
    cluster.nodes_ready = {"node-1": False}
    cluster.pass_time(200.0)
    assert [each.grace_seconds for each in cluster.decide().delete] in ([], [0])
    cluster.decide()
    cluster.change("job-1", grace_seconds=0.0, deleting_since=cluster.now)
    cluster.pass_time(300.0)
    for _ in range(3):
        cluster.reconcile()
    assert cluster.decide().writes == 0


# ---- 14: not started


@pytest.mark.parametrize(
    ("waiting", "wanted"), [("ImagePullBackOff", "ImagePull"), ("CreateContainerConfigError", "ContainerConfig")]
)
def test_case_14_what_keeps_containers_from_starting(waiting: str, wanted: str) -> None:
    cluster = Cluster(2, startDeadlineSeconds=60)
    cluster.settle()
    container = replace(cluster.pods["job-1"].containers[0], waiting_reason=waiting, waiting_message="no such thing")
    cluster.change("job-1", containers=(container,))
    cluster.settle()
    assert (cluster.phase, reason(cluster, "Running")) == ("Starting", wanted)
    assert "job-1" in cluster.condition("Running")["message"]
    cluster.pass_time(62.0)
    cluster.settle()
    assert (cluster.phase, reason(cluster, "Failed")) == ("Failed", "StartDeadlineExceeded")


def test_case_14_gated_pods_run_no_clock() -> None:
    cluster = Cluster(2, startDeadlineSeconds=60)
    cluster.settle()
    for name in cluster.pods:
        cluster.change(name, gated=True)
    cluster.settle()
    cluster.pass_time(5000.0)
    cluster.settle()
    assert (cluster.phase, reason(cluster, "Admitted")) == ("Pending", "Queued")
    for name in cluster.pods:
        cluster.change(name, gated=False)
    cluster.settle()
    assert cluster.phase == "Starting"
    cluster.pass_time(61.0)
    cluster.settle()
    assert cluster.phase == "Failed"


# ---- 16, 22: ends


def test_case_22_a_job_that_ends_does_not_start_again_in_between() -> None:
    cluster = started(3)
    for name in ("job-2", "job-1"):
        cluster.end(name, 0)
        cluster.settle()
        assert cluster.phase == "Running"
    cluster.end("job-0", 0, json.dumps({"step": TARGET, "targetStep": TARGET}))
    cluster.settle()
    cluster.pass_time(15.0)
    cluster.settle()
    assert cluster.phase == "Complete"
    assert [status["phase"] for status in cluster.statuses][-2:].count("Starting") == 0


@pytest.mark.parametrize("message", [json.dumps({"step": TARGET - 1}), "", "[1, 2]", json.dumps({"step": True})])
def test_ended_before_the_target_is_a_fault(message: str) -> None:
    cluster = started()
    cluster.end("job-0", 0, message)
    decision = cluster.reconcile()
    assert "EndedEarly" in {note.reason for note in decision.notes}
    assert counters(cluster) == (1, 1, 1)


def test_a_container_that_a_template_added_decides_nothing() -> None:
    cluster = started()
    sidecar = ContainerView("shipper", running=True, ready=True, restarts=0)
    for name in cluster.pods:
        cluster.change(name, containers=(*cluster.pods[name].containers, sidecar))
    cluster.settle()
    assert cluster.phase == "Running"
    for name, code in (("job-0", 0), ("job-1", 0)):
        rank = replace(cluster.pods[name].containers[0], running=False, exit_code=code, finished=cluster.now)
        rank = replace(rank, termination_message=json.dumps({"step": TARGET}))
        cluster.change(name, containers=(rank, sidecar))
    cluster.settle()
    cluster.pass_time(40.0)
    cluster.settle()
    assert (cluster.phase, counters(cluster)) == ("Complete", (0, 0, 0))


@pytest.mark.parametrize("code", [0, 1, EXIT_BAD_JOB])
def test_a_container_that_a_template_added_may_end(code: int) -> None:
    cluster = started()
    ended = ContainerView("setup", running=False, ready=False, restarts=0, exit_code=code, finished=cluster.now)
    cluster.change("job-0", containers=(*cluster.pods["job-0"].containers, ended))
    cluster.settle()
    cluster.pass_time(100.0)
    cluster.settle()
    assert (cluster.phase, counters(cluster)) == ("Running", (0, 0, 0))


@pytest.mark.parametrize(("code", "wanted"), [(EXIT_BAD_JOB, "BadJob"), (EXIT_RUN_STOPPED, "RunStopped")])
def test_exit_codes_that_are_never_restarted(code: int, wanted: str) -> None:
    cluster = started()
    cluster.end("job-1", 42)
    cluster.end("job-0", code, json.dumps({"message": "logprobs differ"}))
    cluster.settle()
    assert (cluster.phase, reason(cluster, "Failed"), counters(cluster)) == ("Failed", wanted, (0, 0, 0))
    assert "logprobs differ" in cluster.condition("Failed")["message"]
