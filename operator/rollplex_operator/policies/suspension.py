"""Suspended by its user: the pods save a checkpoint and go, and the next ones belong to the next attempt.

The attempt is counted when the suspension begins, so that resuming is nothing but creating its pods, be it before or
after the old ones are gone.
"""

from __future__ import annotations

from rollplex_operator.names import Condition, Reason
from rollplex_operator.policies.others import tidy
from rollplex_operator.policies.removal import remove
from rollplex_operator.policies.turn import Turn


def suspension(turn: Turn) -> bool:
    """Condition Suspended; a job that should not run needs no other policy."""
    status = turn.status
    if not turn.wants_suspension:
        if status.reason(Condition.SUSPENDED) == Reason.SUSPENDING:  # changed his mind
            status.set(Condition.RUNNING, "False", Reason.RESTARTING, "resumed before the pods were gone")
        elif status.is_true(Condition.SUSPENDED):
            status.set(Condition.RUNNING, "False", Reason.STARTING)
        status.set(Condition.SUSPENDED, "False", Reason.NOT_SUSPENDED)
        return False
    if status.reason(Condition.SUSPENDED) == Reason.NOT_SUSPENDED and status.attempt is not None:
        turn.begin_attempt()
    status.set(Condition.PODS_CREATED, "False", Reason.SUSPENDED_BY_USER)
    status.fields["startTime"] = None  # the time that it is suspended does not count towards its deadline
    status.fields["restart"] = None  # its nodes may be others, or newer, when it goes on
    if turn.job is not None:
        status.fields["nodes"] = f"0/{turn.nodes}"
    pods = turn.own
    if pods:
        status.set(Condition.SUSPENDED, "False", Reason.SUSPENDING)
        status.set(Condition.RUNNING, "False", Reason.SUSPENDING)
        remove(turn, pods)
    else:
        if not status.is_true(Condition.SUSPENDED):
            turn.tell(Reason.SUSPENDED_BY_USER, "no pods are left")
        status.set(Condition.SUSPENDED, "True", Reason.SUSPENDED_BY_USER)
        status.set(Condition.RUNNING, "False", Reason.SUSPENDED_BY_USER)
    tidy(turn)
    return True
