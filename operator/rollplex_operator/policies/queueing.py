"""Pods that a queue holds back by scheduling gates: the job waits, nothing is wrong with it."""

from __future__ import annotations

from rollplex_operator.names import Condition, Reason
from rollplex_operator.policies.turn import Turn


def queueing(turn: Turn) -> bool:
    """Condition Admitted False, reason Queued, while pods are gated; True again when none is."""
    held = [pod for pod in turn.current if pod.gated and pod.deleting_since is None]
    if held:
        queue = turn.spec.spec.scheduling.queue
        where = f"queue {queue}" if queue is not None else "scheduling gates"
        # no number of pods: the gates go one by one
        message = f"{where} holds the pods back" if queue is not None else f"{where} hold the pods back"
        turn.status.set(Condition.ADMITTED, "False", Reason.QUEUED, message)
    else:
        turn.status.set(Condition.ADMITTED, "True", Reason.VALID)
    return False
