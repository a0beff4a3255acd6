"""Pods that a node's kubelet refused (TopologyAffinityError and kin): made anew within the attempt, later and later."""

from __future__ import annotations

from rollplex_operator.names import Condition, Reason
from rollplex_operator.observation import PodView
from rollplex_operator.status import seconds_of, timestamp
from rollplex_operator.turn import Turn

LONGEST_WAIT = 300.0
# the kubelet's words for "not on this node", in status.reason of a pod whose containers never began
_REASONS = (
    *("TopologyAffinityError", "UnexpectedAdmissionError", "NodeAffinity", "NodeName", "NodePorts"),
    *("NodeResourcesFit", "SMTAlignmentError", "PodLevelResourcesAdmissionError", "AppArmor", "InitialResizeFailed"),
)


def rejection(turn: Turn) -> bool:
    """Takes refused pods away and counts them in ``rejections``; no restart is counted."""
    status = turn.status
    refused = [pod for pod in turn.current if was_refused(pod)]
    if not refused or status.is_true(Condition.RUNNING):
        return False
    known = status.fields.get("rejections") or {}
    counted = seconds_of(known.get("time"))
    fresh = [pod for pod in refused if counted is None or pod.created >= counted]
    first = refused[0]
    message = f"{first.name}: node {first.node} refused it: {first.reason}: {first.message}"
    if fresh:
        status.fields["rejections"] = {"count": int(known.get("count", 0)) + 1, "time": timestamp(turn.now + 1)}
        if not known:
            turn.warn(Reason.REJECTED_BY_NODE, message)
    status.set(Condition.PODS_CREATED, "False", Reason.REJECTED_BY_NODE, message)
    turn.delete(refused)
    return False


def was_refused(pod: PodView) -> bool:
    """Whether the kubelet never began with it."""
    named = pod.reason in _REASONS or pod.reason.startswith("OutOf")
    return pod.phase == "Failed" and named and all(each.exit_code is None for each in pod.containers)


def due_again(turn: Turn) -> float:
    """When a refused pod may be made anew: 2, 4, 8, ... seconds after the last refusal."""
    known = turn.status.fields.get("rejections") or {}
    at = seconds_of(known.get("time"))
    return 0.0 if at is None else at + min(2.0 ** int(known.get("count", 0)), LONGEST_WAIT)
