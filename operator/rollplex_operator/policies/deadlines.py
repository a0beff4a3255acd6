"""A job that does not start, or runs for too long, fails and gives its nodes back."""

from __future__ import annotations

from rollplex_operator.names import TERMINAL, Condition, Reason
from rollplex_operator.status import seconds_of
from rollplex_operator.turn import Turn


def deadlines(turn: Turn) -> bool:
    """``startDeadlineSeconds`` and ``activeDeadlineSeconds``."""
    status, policy = turn.status, turn.spec.spec.run_policy
    if status.phase in TERMINAL:
        return False
    began = seconds_of(status.fields.get("startTime"))
    if began is not None and policy.active_deadline_seconds is not None:
        due = began + policy.active_deadline_seconds
        if turn.now >= due:
            limit = f"runPolicy.activeDeadlineSeconds {policy.active_deadline_seconds}"
            turn.fail(Reason.ACTIVE_DEADLINE, f"the job has run for longer than {limit}")
            return False
        turn.wake(due)
    # held by a queue, refused by the server or by a node: somebody else's turn, which is no failure to start
    starting = status.is_true(Condition.PODS_CREATED) and status.is_true(Condition.ADMITTED)
    if starting and not status.is_true(Condition.RUNNING):
        since = max(status.since(each) for each in (Condition.PODS_CREATED, Condition.ADMITTED, Condition.RUNNING))
        due = since + policy.start_deadline_seconds
        if turn.now >= due:
            limit = f"runPolicy.startDeadlineSeconds {policy.start_deadline_seconds}"
            turn.fail(Reason.START_DEADLINE, f"not all pods ran within {limit}: {_why(turn)}")
            return False
        turn.wake(due)
    return False


def _why(turn: Turn) -> str:
    return turn.status.message(Condition.RUNNING) or turn.status.reason(Condition.RUNNING)
