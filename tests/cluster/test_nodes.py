"""Nodes and their kubelets fail, refuse or cannot start pods: situations 13, 14, 28."""

from __future__ import annotations

import itertools
import time

import pytest

from tests.cluster.fake_kubelet import Fate
from tests.cluster.jobs import has_reason, on_nodes
from tests.cluster.situation import Situation


def test_case_13_a_pod_of_a_dead_node_is_forced(situation: Situation) -> None:
    own = f"{situation.namespace}-own"
    nodes = situation.kubelet.add_nodes(own, 3, {"pods": "1"})
    situation.start(podTemplate=on_nodes(own), runPolicy={"terminationGraceSeconds": 1, "restart": "newPods"})
    dead = next(pod["spec"]["nodeName"] for pod in situation.pods() if pod["metadata"]["name"] == "job-1")
    situation.kubelet.kill_node(dead)
    situation.fail("job-0")
    situation.wait("job", lambda job: dead in str(job["status"]["conditions"]), timeout=60)
    assert situation.condition("PodsCreated")["reason"] == "NodeLost"
    taint = {"spec": {"unschedulable": True}}
    situation.client.patch("nodes", dead, taint)
    situation.wait_attempt(1, timeout=90)
    assert {pod["spec"]["nodeName"] for pod in situation.pods()} == set(nodes) - {dead}
    assert situation.status()["restarts"] == 1


def test_case_13_a_pod_of_a_live_node_is_not_forced(situation: Situation) -> None:
    own = f"{situation.namespace}-own"
    situation.kubelet.add_nodes(own, 2, {"pods": "1"})
    situation.start(podTemplate=on_nodes(own), runPolicy={"terminationGraceSeconds": 1, "restart": "newPods"})
    slow = situation.kubelet.pod(situation.namespace, "job-1")
    situation.kubelet.dead_nodes.add(slow.body["spec"]["nodeName"])  # Ready, but its pod does not go
    situation.fail("job-0")
    situation.wait("job", "Restarting")
    time.sleep(8.0)
    assert slow.body["metadata"]["uid"] in {pod["metadata"]["uid"] for pod in situation.pods()}
    forced = [
        write
        for write in situation.writes()
        if write["verb"] == "delete" and "gracePeriodSeconds=0" in write["requestURI"]
    ]
    assert forced == []


@pytest.mark.parametrize(
    ("waits", "reason"), [("ImagePullBackOff", "ImagePull"), ("CreateContainerConfigError", "ContainerConfig")]
)
def test_case_14_containers_that_do_not_start(situation: Situation, waits: str, reason: str) -> None:
    situation.behave(lambda pod: Fate(wait=waits) if pod.index == 1 else Fate())
    situation.create(runPolicy={"startDeadlineSeconds": 6})
    situation.wait("job", has_reason("Running", reason), timeout=5)
    assert "job-1" in situation.condition("Running")["message"]
    assert situation.status()["phase"] == "Starting"
    situation.wait("job", "Failed", timeout=10)
    assert situation.condition("Failed")["reason"] == "StartDeadlineExceeded"
    assert situation.status().get("restarts", 0) == 0


def test_case_14_pods_that_no_node_takes(situation: Situation) -> None:
    situation.create(podTemplate=on_nodes("nowhere"))
    situation.wait("job", has_reason("Running", "Unschedulable"), timeout=10)
    assert "nodes are available" in situation.condition("Running")["message"]
    assert situation.made() == 2


def test_case_14_gated_pods_are_no_failures(situation: Situation) -> None:
    situation.create(
        podTemplate={"spec": {"schedulingGates": [{"name": "example.com/wait"}]}}, runPolicy={"startDeadlineSeconds": 2}
    )
    situation.wait("job", has_reason("Admitted", "Queued"), timeout=10)
    time.sleep(4.0)
    assert situation.status()["phase"] == "Pending"
    for pod in situation.pods():
        situation.client.patch("pods", pod["metadata"]["name"], {"spec": {"schedulingGates": []}})
    situation.wait("job", "Running")
    assert situation.made() == 2


def test_case_28_the_kubelet_rejects_pods(situation: Situation) -> None:
    situation.behave(lambda pod: Fate(reject="TopologyAffinityError") if pod.index == 1 else Fate())
    situation.create()
    situation.wait("job", has_reason("PodsCreated", "RejectedByNode"), timeout=10)
    message = situation.condition("PodsCreated")["message"]
    assert "TopologyAffinityError" in message
    assert "node-" in message
    situation.wait("job", lambda job: job["status"]["rejections"]["count"] >= 2, timeout=40)
    born = sorted(
        situation.history.born[pod["metadata"]["uid"]] for pod in situation.history.pods_of(situation.namespace)
    )
    rounds = [at for before, at in zip([0.0, *born], born, strict=False) if at - before > 0.8]
    waits = [after - before for before, after in itertools.pairwise(rounds)]
    assert waits == sorted(waits), "the wait between tries grows"
    situation.behave(Fate())
    situation.wait("job", "Running", timeout=60)
    assert all(pod["status"]["phase"] == "Running" for pod in situation.pods())
    assert situation.status().get("restarts", 0) == 0
    situation.injected = situation.made()
