"""Nodes that take no pod: situation 14 (``test_waits`` has 13, 28 and the rest of 14), and kubelets that are older."""

from __future__ import annotations

from rollplex_operator.pods import IN_PLACE_FEATURE
from tests.cluster.jobs import has_reason, on_nodes
from tests.cluster.situation import Situation


def test_case_14_pods_that_no_node_takes(situation: Situation) -> None:
    situation.create(podTemplate=on_nodes("nowhere"))
    situation.wait("job", has_reason("Running", "Unschedulable"), timeout=10)
    assert "nodes are available" in situation.condition("Running")["message"]
    assert situation.made() == 2


def test_kubelets_that_cannot_restart_in_place_get_pods_that_do_not_ask_for_it(situation: Situation) -> None:
    own = f"{situation.namespace}-old"
    situation.kubelet.add_nodes(own, 2, features=())
    situation.start(podTemplate=on_nodes(own))
    assert IN_PLACE_FEATURE in situation.condition("PodsCreated")["message"]
    status = situation.status()
    assert (status["attempt"], status["restarts"], status["restart"]) == (1, 0, "newPods")
    situation.fail("job-1", 42)
    situation.wait_attempt(2)
    assert situation.status()["restarts"] == 1
    situation.injected = 1  # the first pods were never placed
    situation.edit(runPolicy={"suspend": True})
    situation.wait("job", "Suspended")
    situation.kubelet.add_nodes(f"{own}-new", 2)
    situation.edit(runPolicy={"suspend": False}, podTemplate=on_nodes(f"{own}-new"))
    situation.wait("job", "Running")
    assert situation.pods()[0]["spec"]["containers"][0]["restartPolicyRules"]
    assert situation.condition("PodsCreated")["message"] == ""
