"""Situations in which time has to pass: 4, 5, 13, 14, 16, 28, deadlines and progress, all of them at once."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from functools import partial

import pytest

from tests.cluster.conftest import new_namespace
from tests.cluster.fake_kubelet import Fate
from tests.cluster.jobs import TARGET, has_reason, on_nodes
from tests.cluster.policies import denying, quota
from tests.cluster.shared import SharedOperator
from tests.cluster.situation import Situation

Case = Callable[[Situation], None]


def case_04_quota_for_three_of_four_pods(situation: Situation) -> None:
    quota(situation, 3)
    situation.create(nodes=4)
    job = situation.wait("job", has_reason("PodsCreated", "QuotaExceeded"))
    assert "exceeded quota: few" in situation.condition("PodsCreated")["message"]
    assert job["status"]["phase"] == "Pending"
    situation.wait_for("no part of the gang holds GPUs", lambda: not situation.pods())
    began = time.time()
    time.sleep(8.0)
    born = [pod["metadata"]["creationTimestamp"] for pod in situation.history.pods_of(situation.namespace)]
    tries = [at for at in map(datetime.fromisoformat, born) if at.timestamp() > began]
    assert len(tries) <= 3 * 4, "the waits between tries grow"
    made = situation.made()
    quota(situation, 4)
    situation.wait("job", "Running", timeout=60)
    assert situation.status().get("restarts", 0) == 0
    situation.injected = (made + 3) // 4  # each try made up to three pods that were given back


def case_05_an_admission_policy_denies_pods(situation: Situation, seconds: float, most: int) -> None:
    with denying(situation):
        situation.create()
        situation.wait("job", has_reason("PodsCreated", "Refused"))
        assert "no pods on Sundays" in situation.condition("PodsCreated")["message"]
        time.sleep(seconds)
        tries = [
            write
            for write in situation.writes()
            if write["objectRef"]["resource"] == "pods"
            and write["verb"] == "create"
            and "dryRun" not in write["requestURI"]
        ]
        assert 2 <= len(tries) <= most
        assert {write["responseStatus"]["code"] for write in tries} <= {403, 422}
        assert len(situation.events(kind="Warning")) == 1
    situation.wait("job", "Running", timeout=60)
    assert situation.status().get("restarts", 0) == 0


def case_13_a_pod_of_a_dead_node_is_forced(situation: Situation) -> None:
    own = f"{situation.namespace}-own"
    nodes = situation.kubelet.add_nodes(own, 3, {"pods": "1"})
    situation.start(podTemplate=on_nodes(own), runPolicy={"terminationGraceSeconds": 1, "restart": "newPods"})
    dead = next(pod["spec"]["nodeName"] for pod in situation.pods() if pod["metadata"]["name"] == "job-1")
    situation.kubelet.kill_node(dead)
    situation.fail("job-0")
    situation.wait("job", lambda job: dead in str(job["status"]["conditions"]), timeout=60)
    assert situation.condition("PodsCreated")["reason"] == "NodeLost"
    situation.client.patch("nodes", dead, {"spec": {"unschedulable": True}})
    situation.wait_attempt(1, timeout=90)
    assert {pod["spec"]["nodeName"] for pod in situation.pods()} == set(nodes) - {dead}
    assert situation.status()["restarts"] == 1


def case_13_a_pod_of_a_live_node_is_not_forced(situation: Situation) -> None:
    own = f"{situation.namespace}-own"
    situation.kubelet.add_nodes(own, 2, {"pods": "1"})
    situation.start(podTemplate=on_nodes(own), runPolicy={"terminationGraceSeconds": 1, "restart": "newPods"})
    slow = situation.kubelet.pod(situation.namespace, "job-1")
    situation.kubelet.dead_nodes.add(slow.body["spec"]["nodeName"])  # Ready, but its pod does not go
    situation.fail("job-0")
    situation.wait("job", "Restarting")
    time.sleep(35.0)  # a dead node's would be forced after 31 s
    assert slow.body["metadata"]["uid"] in {pod["metadata"]["uid"] for pod in situation.pods()}
    writes = [write["requestURI"] for write in situation.writes() if write["verb"] == "delete"]
    assert [uri for uri in writes if "gracePeriodSeconds=0" in uri] == []


def case_14_containers_that_do_not_start(situation: Situation, waits: str, reason: str) -> None:
    situation.behave(lambda pod: Fate(wait=waits) if pod.index == 1 else Fate())
    situation.create(runPolicy={"startDeadlineSeconds": 15})
    situation.wait("job", has_reason("Running", reason))
    assert "job-1" in situation.condition("Running")["message"]
    assert situation.status()["phase"] == "Starting"
    situation.wait("job", "Failed")
    assert situation.condition("Failed")["reason"] == "StartDeadlineExceeded"
    assert situation.status().get("restarts", 0) == 0


def case_14_gated_pods_are_no_failures(situation: Situation) -> None:
    situation.create(
        podTemplate={"spec": {"schedulingGates": [{"name": "example.com/wait"}]}}, runPolicy={"startDeadlineSeconds": 2}
    )
    situation.wait("job", has_reason("Admitted", "Queued"))
    time.sleep(4.0)
    assert situation.status()["phase"] == "Pending"
    for pod in situation.pods():
        situation.client.patch("pods", pod["metadata"]["name"], {"spec": {"schedulingGates": []}})
    situation.wait("job", "Running")
    assert situation.made() == 2


def case_16_only_what_the_policy_keeps_remains(situation: Situation, policy: str, ending: str) -> None:
    situation.start(nodes=3, runPolicy={"maxRestarts": 0, "cleanPods": policy})
    # the others' supervisors are a little slower
    situation.kubelet.end(situation.namespace, "job-0", 0 if ending == "Complete" else 1)
    situation.wait("job", ending)
    kept = {"running": ["job-0"], "all": [], "none": ["job-0", "job-1", "job-2"]}[policy]
    situation.wait_for(f"{kept} remain", lambda: situation.pod_names() == kept, 10)
    time.sleep(1.0)
    assert situation.pod_names() == kept
    assert situation.client.find("configmaps", "job") is not None


def case_28_the_kubelet_rejects_pods(situation: Situation) -> None:
    situation.behave(lambda pod: Fate(reject="TopologyAffinityError") if pod.index == 1 else Fate())
    situation.create()
    situation.wait("job", has_reason("PodsCreated", "RejectedByNode"))
    message = situation.condition("PodsCreated")["message"]
    assert "TopologyAffinityError" in message
    assert "node-" in message
    situation.wait("job", lambda job: job["status"]["rejections"]["count"] >= 3, timeout=40)
    history = situation.history
    tries = [pod for pod in history.pods_of(situation.namespace) if pod["metadata"]["name"] == "job-1"]
    born = sorted(history.born[pod["metadata"]["uid"]] for pod in tries)
    waits = [after - before for before, after in itertools.pairwise(born)]
    # at least 2 s, then 4 s, from a time that is kept in whole seconds
    assert all(wait > least - 1.0 for wait, least in zip(waits, (2.0, 4.0), strict=False)), waits
    assert len(waits) >= 2
    situation.behave(Fate())
    situation.wait("job", "Running", timeout=60)
    assert all(pod["status"]["phase"] == "Running" for pod in situation.pods())
    assert situation.status().get("restarts", 0) == 0
    situation.injected = situation.made()


def progress_is_in_the_status(situation: Situation) -> None:
    situation.kubelet.report(
        situation.namespace, "job", step=3, targetStep=TARGET, hiddenPercent=61.5, savedPercent=12.5
    )
    situation.start()
    situation.wait("job", lambda job: job["status"].get("step") == 3, timeout=50)
    status = situation.status()
    assert status["targetStep"] == TARGET
    assert status["overlap"] == {"hiddenPercent": 61.5, "savedPercent": 12.5}
    row = situation.kubectl("get", "rpj", "job", "--no-headers").split()
    assert row[1:6] == ["Running", "3", "2/2", "0", "12.5"]


CASES: dict[str, Case] = {
    "case_04_quota": case_04_quota_for_three_of_four_pods,
    "case_05_policy": partial(case_05_an_admission_policy_denies_pods, seconds=12, most=6),
    "case_05_policy_for_a_minute": partial(case_05_an_admission_policy_denies_pods, seconds=60, most=10),
    "case_13_dead_node": case_13_a_pod_of_a_dead_node_is_forced,
    "case_13_live_node": case_13_a_pod_of_a_live_node_is_not_forced,
    "case_14_image": partial(case_14_containers_that_do_not_start, waits="ImagePullBackOff", reason="ImagePull"),
    "case_14_config": partial(
        case_14_containers_that_do_not_start, waits="CreateContainerConfigError", reason="ContainerConfig"
    ),
    "case_14_gates": case_14_gated_pods_are_no_failures,
    **{
        f"case_16_{ending}_{policy}": partial(case_16_only_what_the_policy_keeps_remains, policy=policy, ending=ending)
        for policy in ("running", "all", "none")
        for ending in ("Complete", "Failed")
    },
    "case_28_rejected": case_28_the_kubelet_rejects_pods,
    "progress": progress_is_in_the_status,
}
LONG = {"case_05_policy_for_a_minute"}


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, shared: SharedOperator) -> Iterator[dict[str, Future[None]]]:
    """Those cases that are to run, all begun."""
    items = {item.name for item in request.session.items}
    names = [name for name in CASES if f"test_time_passes[{name}]" in items]
    with ThreadPoolExecutor(len(names)) as threads:
        situations = {name: shared.situation(new_namespace(shared.plane)) for name in names}
        yield {name: threads.submit(_run, CASES[name], situations[name], shared) for name in names}


def _run(case: Case, situation: Situation, shared: SharedOperator) -> None:
    case(situation)
    shared.check(situation)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] if name in LONG else []) for name in CASES]
)
def test_time_passes(outcomes: dict[str, Future[None]], name: str) -> None:
    outcomes[name].result()
