"""Pods that a node's kubelet did not admit: TopologyAffinityError, UnexpectedAdmissionError, OutOfcpu and kin.

None of their containers ever started, so the attempt has not begun: they are replaced within it, after a wait that
grows with each round, and no restart is counted. ``status.rejections`` has the rounds and the time of the last one;
until its wait is over no pod is made, so one that is found before was counted. Only this process's own clock is asked.
"""

from __future__ import annotations

from rollplex_operator.backoff import growing
from rollplex_operator.names import Condition, Reason
from rollplex_operator.observation import PodView
from rollplex_operator.policies.reports import place
from rollplex_operator.policies.turn import Turn
from rollplex_operator.times import seconds_of, timestamp

FIRST_SECONDS, MOST_SECONDS = 2.0, 300.0


def rejected(turn: Turn) -> list[PodView]:
    """Pods of this attempt that never ran. Once all ran, a refusal is a fault: it comes from a kubelet that was started
    anew, which leaves out of its report that their containers ran before."""
    if turn.status.is_true(Condition.RUNNING):
        return []
    return [pod for pod in turn.current if _refused(pod)]


def _refused(pod: PodView) -> bool:
    """Whether the kubelet refused it. A disrupted pod was admitted once."""
    started = any(each.running or each.exit_code is not None or each.restarts for each in pod.containers)
    return pod.phase == "Failed" and bool(pod.reason) and not started and not pod.disrupted


def rejection(turn: Turn) -> bool:
    """Condition PodsCreated False, reason RejectedByNode, while a pod was or is to be replaced."""
    pods = rejected(turn)
    if not pods:
        return False
    known = turn.status.fields.get("rejections") or {}
    if turn.now >= replaced_at(turn) and any(pod.deleting_since is None for pod in pods):
        turn.status.fields["rejections"] = {"count": known.get("count", 0) + 1, "time": timestamp(turn.now)}
    first = pods[0]
    message = f"{place(first)} was not admitted by its kubelet: {first.reason}: {first.message}"
    if turn.status.reason(Condition.PODS_CREATED) != Reason.REJECTED_BY_NODE:
        turn.warn(Reason.REJECTED_BY_NODE, message)
    turn.status.set(Condition.PODS_CREATED, "False", Reason.REJECTED_BY_NODE, message)
    turn.delete(pods)
    return False


def replaced_at(turn: Turn) -> float:
    """When rejected pods may be replaced (seconds since the epoch); 0 where none were."""
    known = turn.status.fields.get("rejections") or {}
    last = seconds_of(known.get("time"))
    return 0.0 if last is None else last + growing(known["count"], FIRST_SECONDS, MOST_SECONDS)


def first_at(turn: Turn) -> float | None:
    """About when the first of these rejections was: the last one's time less the waits since."""
    known = turn.status.fields.get("rejections") or {}
    last = seconds_of(known.get("time"))
    if last is None:
        return None
    rounds = min(known["count"], 10_000)
    return last - sum(growing(count, FIRST_SECONDS, MOST_SECONDS) for count in range(1, rounds))
