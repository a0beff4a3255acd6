"""Pods end otherwise than they should: situations 9, 10, 11, 12, and restarts in place."""

from __future__ import annotations

import json

import pytest

from rollplex_operator import names
from tests.cluster.fake_kubelet import Fate
from tests.cluster.jobs import TARGET
from tests.cluster.situation import Situation

NEW_PODS = {"restart": "newPods"}


def counters(situation: Situation) -> tuple[int, int]:
    status = situation.status()
    return status.get("restarts", 0), status.get("restartsCountedTowardsMax", 0)


def test_case_09_succeeded_and_deleted_before_the_operator_looked(bare: Situation) -> None:
    operator = bare.start_operator()
    bare.start()
    operator.program.stop()
    bare.complete()
    for pod in bare.pod_names():
        bare.client.delete("pods", pod, grace=0, missing_ok=True)
    bare.start_operator()
    bare.wait_attempt(1)
    assert counters(bare) == (1, 1)
    assert any(event["reason"] == "PodLost" for event in bare.events(kind="Warning")), bare.events()
    bare.check()


def test_case_10_no_restart_is_allowed(situation: Situation) -> None:
    situation.start(nodes=3, runPolicy={"maxRestarts": 0})
    node = situation.pods()[1]["spec"]["nodeName"]
    situation.fail("job-1", 7)
    situation.wait("job", "Failed", timeout=5)
    failed = situation.condition("Failed")
    assert failed["reason"] == "RestartsExhausted"
    for part in ("job-1", "7", node):
        assert part in failed["message"]
    situation.wait_for("the others give their GPUs back", lambda: situation.pod_names() == ["job-1"])
    assert situation.made() == 3


@pytest.mark.parametrize("seconds", [3.0, pytest.param(8.0, marks=pytest.mark.long)])
def test_case_11_new_pods_wait_for_the_last_old_one(situation: Situation, seconds: float) -> None:
    situation.behave(Fate(terminate_seconds=seconds))
    situation.start(nodes=3, runPolicy={**NEW_PODS, "disruptionBudget": True})
    old = {pod["metadata"]["uid"] for pod in situation.pods()}
    situation.fail("job-2")
    situation.wait("job", "Restarting", timeout=5)
    situation.wait_attempt(1)
    new = {pod["metadata"]["uid"] for pod in situation.pods()}
    history = situation.history
    assert max(history.gone[uid] for uid in old) <= min(history.born[uid] for uid in new)
    assert counters(situation) == (1, 1)
    assert situation.made() == 6
    attempts = {pod["metadata"]["labels"][names.LABEL_ATTEMPT] for pod in situation.pods()}
    assert attempts == {"1"}
    for plural in ("services", "configmaps", "poddisruptionbudgets"):
        assert situation.client.get(plural, "job")["metadata"]["labels"][names.LABEL_ATTEMPT] == "1"
    assert situation.phases()[-3:] == ["Restarting", "Starting", "Running"]


@pytest.mark.parametrize("reason", ["PreemptionByScheduler", "TerminationByKubelet", "EvictionByEvictionAPI"])
def test_case_12_a_disruption_does_not_count(situation: Situation, reason: str) -> None:
    situation.start(runPolicy=NEW_PODS)
    situation.kubelet.evict(situation.namespace, "job-1", reason)
    situation.wait_attempt(1)
    assert counters(situation) == (1, 0)


def test_case_12_a_drain_does_not_count(situation: Situation) -> None:
    situation.start(runPolicy={"maxRestarts": 0})
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "job-0"}}
    situation.client.request("POST", situation.client.path("pods", "job-0", "eviction"), eviction)
    situation.wait_attempt(1)
    assert counters(situation) == (1, 0)


def test_case_12_a_kill_without_disruption_counts(situation: Situation) -> None:
    situation.start(runPolicy=NEW_PODS)
    situation.fail("job-1", 137, "")
    situation.wait_attempt(1)
    assert counters(situation) == (1, 1)


def test_ended_before_the_target_is_a_failure(situation: Situation) -> None:
    situation.start(runPolicy={"maxRestarts": 1, **NEW_PODS})
    situation.fail("job-0", 0, json.dumps({"attempt": 0, "step": TARGET - 1, "targetStep": TARGET}))
    situation.wait_attempt(1)
    assert any(event["reason"] == "EndedEarly" for event in situation.events())
    assert counters(situation) == (1, 1)


@pytest.mark.parametrize(("code", "reason"), [(names.EXIT_BAD_JOB, "BadJob"), (names.EXIT_RUN_STOPPED, "RunStopped")])
def test_exit_codes_that_are_never_restarted(situation: Situation, code: int, reason: str) -> None:
    situation.start()
    situation.fail("job-0", code, json.dumps({"message": "logprobs differ"}))
    situation.wait("job", "Failed", timeout=5)
    assert situation.condition("Failed")["reason"] == reason
    assert "logprobs differ" in situation.condition("Failed")["message"]
    assert counters(situation) == (0, 0)


def test_restart_in_place_keeps_the_pods(situation: Situation) -> None:
    situation.start(nodes=3)
    before = [pod["metadata"]["uid"] for pod in situation.pods()]
    for restarts in (1, 2):
        situation.kubelet.restart_in_place(situation.namespace, "job")
        situation.wait_restarts(restarts)
        assert counters(situation) == (restarts, restarts)
    assert situation.status()["attempt"] == 0
    assert [pod["metadata"]["uid"] for pod in situation.pods()] == before
    situation.complete()
    situation.wait("job", "Complete")


def test_restart_in_place_becomes_new_pods_where_a_pod_is_lost(situation: Situation) -> None:
    situation.start()
    situation.kubelet.restart_in_place(situation.namespace, "job")
    situation.wait("job", lambda job: job["status"].get("restarts") == 1)
    situation.client.delete("pods", "job-1", grace=0)
    situation.wait_attempt(1)
    assert situation.status()["restarts"] == 2


def test_restarts_in_place_are_limited_too(situation: Situation) -> None:
    situation.start(runPolicy={"maxRestarts": 1})
    situation.kubelet.restart_in_place(situation.namespace, "job")
    situation.wait("job", lambda job: job["status"].get("restarts") == 1)
    situation.kubelet.restart_in_place(situation.namespace, "job")
    situation.wait("job", "Failed")
    assert situation.condition("Failed")["reason"] == "RestartsExhausted"
    situation.wait_for("no pod runs", lambda: not situation.pods())
