"""``runPolicy.suspend``: the pods save and go; later new ones go on from the checkpoint."""

from __future__ import annotations

from rollplex_operator.names import Condition, Reason
from rollplex_operator.policies.attempts import begin_attempt
from rollplex_operator.policies.old_pods import watch_over
from rollplex_operator.turn import Turn


def suspension(turn: Turn) -> bool:
    """Condition Suspended. While it is True, or on the way to it, nothing else happens to the job."""
    status = turn.status
    if turn.spec.spec.run_policy.suspend:
        return _suspend(turn)
    if status.is_true(Condition.SUSPENDED) or status.reason(Condition.SUSPENDED) == Reason.SUSPENDING:
        status.set(Condition.SUSPENDED, "False", Reason.NOT_SUSPENDED)
        status.set(Condition.RUNNING, "False", Reason.STARTING)
        if status.attempt is not None:  # its pods were told to go: those of the next attempt are others
            begin_attempt(turn, status.attempt + 1)
        turn.tell(Reason.NOT_SUSPENDED, "resumed")
    return False


def _suspend(turn: Turn) -> bool:
    status = turn.status
    if turn.own:
        if status.reason(Condition.SUSPENDED) != Reason.SUSPENDING:
            turn.tell(Reason.SUSPENDING, "the pods save a checkpoint and end")
        status.set(Condition.SUSPENDED, "False", Reason.SUSPENDING, "the pods save a checkpoint and end")
        status.set(Condition.RUNNING, "False", Reason.SUSPENDING)
        status.fields["nodes"] = f"0/{turn.spec.spec.nodes}"
        turn.delete(turn.own)
        watch_over(turn, turn.own)
        return True
    if not status.is_true(Condition.SUSPENDED):
        turn.tell(Reason.SUSPENDED_BY_USER, "suspended: no pods, no GPUs")
    status.set(Condition.SUSPENDED, "True", Reason.SUSPENDED_BY_USER, "runPolicy.suspend is true")
    status.set(Condition.RUNNING, "False", Reason.SUSPENDED_BY_USER)
    status.set(Condition.PODS_CREATED, "False", Reason.SUSPENDED_BY_USER)
    status.fields |= {"startTime": None, "nodes": f"0/{turn.spec.spec.nodes}"}
    return True
