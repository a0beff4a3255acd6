"""Nodes that take no pod: situation 14 (``test_waits`` has 13, 28 and the rest of 14)."""

from __future__ import annotations

from tests.cluster.jobs import has_reason, on_nodes
from tests.cluster.situation import Situation


def test_case_14_pods_that_no_node_takes(situation: Situation) -> None:
    situation.create(podTemplate=on_nodes("nowhere"))
    situation.wait("job", has_reason("Running", "Unschedulable"), timeout=10)
    assert "nodes are available" in situation.condition("Running")["message"]
    assert situation.made() == 2
