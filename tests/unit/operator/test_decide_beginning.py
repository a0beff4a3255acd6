"""The situations that broke other operators, by their number, as far as they are a matter of deciding."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rollplex_operator.observation import ChildView
from tests.unit.operator.simulation import Cluster
from tests.unit.operator.situations import IN_PLACE, QUOTA, again, counters, pod_of, reason, started

# ---- 3: a job of the same name came before


def test_case_03_pods_of_a_former_job_are_waited_for_and_never_counted() -> None:
    cluster = Cluster(2)
    cluster.pods["job-0"] = pod_of(cluster, phase="Failed", deleting_since=cluster.now, grace_seconds=30.0)
    decision = cluster.settle()
    assert (cluster.created, decision.delete) == (0, ())
    assert reason(cluster, "PodsCreated") == "WaitingForOldPods"
    del cluster.pods["job-0"]
    cluster.settle()
    assert (cluster.created, counters(cluster)) == (2, (0, 0, 0))


def test_case_03_other_children_of_a_former_job_are_not_taken_over() -> None:
    """Applied, the service would have two controllers, which the server refuses with 422."""
    cluster = Cluster(2)
    cluster.children["Service", "job"] = ChildView("Service", "job", "other", "former", 3, "abc")
    decision = cluster.decide()
    assert ("Service", "job") not in {(each["kind"], each["metadata"]["name"]) for each in decision.apply}


def test_an_object_with_the_label_and_no_owner_holds_nothing_up() -> None:
    """Such as a copy that somebody made: nobody will remove it."""
    cluster = Cluster(2)
    cluster.children["ConfigMap", "copy"] = ChildView("ConfigMap", "copy", "other", "", 0, "abc")
    cluster.settle()
    assert cluster.created == 2
    assert ("ConfigMap", "copy") in cluster.children


def test_case_03_a_child_that_the_server_refuses_does_not_fail_the_job() -> None:
    cluster = Cluster(2)
    message = 'Service "job" is invalid: metadata.ownerReferences: Only one reference can have Controller set to true'
    cluster.refuse = lambda kind, name: (422, message) if kind == "Service" else None
    for _ in range(3):
        cluster.reconcile()
        cluster.pass_time(10.0)
    assert cluster.phase != "Failed"
    cluster.refuse = lambda kind, name: None
    cluster.pass_time(400.0)
    cluster.settle()
    assert cluster.created == 2


def test_case_03_a_foreign_pod_with_the_jobs_label_changes_nothing_for_a_running_job() -> None:
    """As kubectl debug --copy-to --keep-labels makes them."""
    cluster = started()
    cluster.pods["copy"] = pod_of(cluster, name="copy-of-job-0", owner_uid="")
    cluster.settle()
    assert cluster.phase == "Running"
    assert reason(cluster, "PodsCreated") == "AllCreated"
    del cluster.pods["job-1"]
    cluster.reconcile()
    assert counters(cluster) == (1, 1, 1)


# ---- 4, 5, 6: refused


def test_case_04_quota_is_said_and_the_pods_that_were_taken_are_given_back() -> None:
    cluster = Cluster(3)
    cluster.refuse = lambda kind, name: QUOTA if name == "job-2" else None
    cluster.reconcile()
    assert set(cluster.pods) == {"job-0", "job-1"}
    cluster.start()  # the scheduler and the kubelet were quick
    cluster.reconcile()
    assert reason(cluster, "PodsCreated") == "QuotaExceeded"
    assert "exceeded quota: few" in cluster.condition("PodsCreated")["message"]
    assert cluster.phase == "Pending"
    assert all(pod.deleting_since is not None for pod in cluster.pods.values())


def test_case_04_pods_that_were_given_back_end_by_sigterm_which_is_no_fault() -> None:
    cluster = Cluster(3)
    cluster.refuse = lambda kind, name: QUOTA if name == "job-2" else None
    cluster.reconcile()
    cluster.start()
    cluster.reconcile()
    for name in list(cluster.pods):  # the kubelet says how they ended before it takes them away
        cluster.end(name, 143)
    cluster.reconcile()
    assert counters(cluster) == (0, 0, 0)
    cluster.finish_deletions()
    cluster.refuse = lambda kind, name: None
    cluster.pass_time(200.0)
    again(cluster)
    assert (cluster.phase, counters(cluster)) == ("Running", (0, 0, 0))


def test_case_05_tries_become_rare_and_one_event_is_sent() -> None:
    cluster = Cluster(2)
    cluster.refuse = lambda kind, name: (403, "no pods on Sundays") if kind == "Pod" else None
    tries, warnings = 0, 0
    for _ in range(600):
        decision = cluster.reconcile()
        tries += bool(decision.create)
        warnings += sum(note.type == "Warning" for note in decision.notes)
        cluster.pass_time(0.1)
    assert 3 <= tries <= 10
    assert warnings == 1
    assert "no pods on Sundays" in cluster.condition("PodsCreated")["message"]


@pytest.mark.parametrize("code", [500, 503, 429])
def test_case_06_a_server_in_trouble_is_said_after_a_while(code: int) -> None:
    """A webhook that is down holds a part of the gang on its GPUs: somebody has to see why."""
    cluster = Cluster(2)
    cluster.refuse = lambda kind, name: (code, 'failed calling webhook "x"') if name == "job-1" else None
    for _ in range(2000):
        cluster.reconcile()
        cluster.pass_time(0.1)
    assert cluster.phase != "Failed"
    assert "webhook" in cluster.condition("PodsCreated")["message"]


def test_case_06_a_foreign_pod_that_has_the_name_is_said() -> None:
    cluster = Cluster(2)
    cluster.refuse = lambda kind, name: (409, 'pods "job-1" already exists') if name == "job-1" else None
    for _ in range(600):
        cluster.reconcile()
        cluster.pass_time(0.1)
    assert "already exists" in cluster.condition("PodsCreated")["message"]


def test_case_06_an_invalid_pod_is_terminal_but_a_policy_that_answers_422_is_not() -> None:
    for message, phase in (("spec.priorityClassName: Invalid value", "Failed"), ("x denied request: no", "Pending")):
        cluster = Cluster(2)
        cluster.refuse = lambda kind, name, message=message: (422, message) if kind == "Pod" else None  # type: ignore[misc]
        cluster.reconcile()
        cluster.reconcile()
        assert cluster.phase == phase


# ---- 8 to 12: ends, restarts


@pytest.mark.parametrize("ending", ["Complete", "Failed"])
def test_case_08_nothing_is_made_after_the_end(ending: str) -> None:
    cluster = started(maxRestarts=0)
    if ending == "Complete":
        cluster.complete()
    else:
        cluster.end("job-0", 1)
    cluster.settle()
    assert cluster.phase == ending
    cluster.pods, cluster.children = {}, {}
    cluster.pass_time(1e6)
    assert cluster.decide().writes == 0


def test_case_08_ttl_deletes_the_job_and_nothing_else_is_written_before() -> None:
    cluster = started(ttlSecondsAfterFinished=60, cleanPods="none")
    cluster.complete()
    decision = cluster.settle()
    assert decision.look_again == pytest.approx(60, abs=2)
    cluster.pass_time(61.5)
    cluster.reconcile()
    assert cluster.job is None


def test_case_09_pods_that_are_gone_are_a_fault() -> None:
    cluster = started()
    cluster.pods = {}
    decision = cluster.reconcile()
    assert "PodLost" in {note.reason for note in decision.notes}
    again(cluster)
    assert (cluster.phase, counters(cluster)) == ("Running", (1, 1, 1))


def test_case_10_the_message_names_the_pod_that_began_it() -> None:
    cluster = started(3, maxRestarts=0)
    cluster.end("job-1", 7, "RuntimeError: CUDA error")
    cluster.pass_time(5.0)
    cluster.end("job-0", 42)
    cluster.end("job-2", 42)
    cluster.settle()
    message = cluster.condition("Failed")["message"]
    assert reason(cluster, "Failed") == "RestartsExhausted"
    for part in ("job-1", "7", "node-1", "CUDA error"):
        assert part in message


def test_case_11_no_new_pod_before_the_last_old_one_is_gone() -> None:
    cluster = started(3)
    cluster.end("job-2", 1)
    cluster.settle()
    assert cluster.phase == "Restarting"
    assert cluster.created == 3
    del cluster.pods["job-0"]
    cluster.settle()
    assert cluster.created == 3
    again(cluster)
    assert (cluster.created, counters(cluster)) == (6, (1, 1, 1))
    assert {pod.attempt for pod in cluster.pods.values()} == {1}


@pytest.mark.parametrize(("disrupted", "counted"), [("PreemptionByScheduler", 0), ("", 1)])
def test_case_12_a_disruption_does_not_count(disrupted: str, counted: int) -> None:
    cluster = started()
    cluster.change("job-1", disrupted=disrupted)
    cluster.end("job-1", 137)
    again(cluster)
    assert counters(cluster) == (1, 1, counted)


def test_case_12_what_follows_a_disruption_in_place_is_one_restart() -> None:
    cluster = started(server=IN_PLACE)
    cluster.change("job-1", disrupted="EvictionByEvictionAPI", deleting_since=cluster.now)
    cluster.change("job-0", containers=(replace(cluster.pods["job-0"].containers[0], restarts=1),))
    again(cluster)
    assert counters(cluster) == (1, 1, 0)
