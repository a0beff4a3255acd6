"""Pods that must be gone before this attempt's can be made: told to go, waited for, and forced only off a dead node."""

from __future__ import annotations

from collections.abc import Sequence

from rollplex_operator.names import Condition, Reason
from rollplex_operator.observation import PodView
from rollplex_operator.policies.attempts import begin_attempt
from rollplex_operator.turn import Turn

LATE_SECONDS = 10.0  # after its grace a pod should be gone; then its node is looked at
FORCE_SECONDS = 30.0  # more, for a node that comes back


def old_pods(turn: Turn) -> bool:
    """Condition PodsCreated is WaitingForOldPods or NodeLost until they are gone."""
    status = turn.status
    waits = turn.in_the_way
    if status.attempt is None:
        begin_attempt(turn, 0)
    if not waits:
        return False
    turn.delete([pod for pod in waits if pod.owner_uid == turn.observation.job.uid])
    names = sorted(pod.name for pod in waits)
    if status.reason(Condition.PODS_CREATED) != Reason.NODE_LOST:
        message = f"{names[0]} of an earlier set is still there"
        status.set(Condition.PODS_CREATED, "False", Reason.WAITING_FOR_OLD_PODS, message)
    status.fields["nodes"] = f"0/{turn.spec.spec.nodes}"
    watch_over(turn, [pod for pod in waits if pod.owner_uid == turn.observation.job.uid])
    return True


def watch_over(turn: Turn, leaving: Sequence[PodView]) -> None:
    """Look at the nodes of pods that are late to leave; a pod whose node is not Ready, or gone, is forced in the end.

    Forcing a pod off a node that works would let two pods of one name write the same checkpoint.
    """
    for pod in leaving:
        if pod.deleting_since is None:
            continue
        late = pod.deleting_since + pod.grace_seconds + LATE_SECONDS
        if turn.now < late:
            turn.wake(late)
            continue
        if pod.node is None:
            turn.delete([pod], force=True)  # no kubelet has it: nobody else will take it away
            continue
        turn.ask_nodes.add(pod.node)
        turn.wake(turn.now + LATE_SECONDS)
        ready = turn.observation.nodes_ready.get(pod.node)  # None: not read yet, or it may not be read
        lost = turn.status.reason(Condition.PODS_CREATED) == Reason.NODE_LOST
        if ready is not False:
            if ready and lost:
                message = f"{pod.name} of an earlier set is still there"
                turn.status.set(Condition.PODS_CREATED, "False", Reason.WAITING_FOR_OLD_PODS, message)
            continue
        message = f"{pod.name} does not end, and its node {pod.node} is not Ready"
        if not lost:
            turn.warn(Reason.NODE_LOST, message)
        turn.status.set(Condition.PODS_CREATED, "False", Reason.NODE_LOST, message)
        if turn.now >= late + FORCE_SECONDS:
            turn.delete([pod], force=True)
        else:
            turn.wake(late + FORCE_SECONDS)
