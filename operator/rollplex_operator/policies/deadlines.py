"""Jobs that do not start, or do not end, in time. What a queue, a quota or old pods hold up runs no clock."""

from __future__ import annotations

from rollplex_operator.names import Condition, Reason
from rollplex_operator.policies.rejection import first_at
from rollplex_operator.policies.turn import Turn
from rollplex_operator.times import seconds_of


def deadlines(turn: Turn) -> bool:
    """The start deadline of each attempt, and the active deadline of the job."""
    policy, status = turn.spec.spec.run_policy, turn.status
    began = _start_clock(turn)
    if began is not None:
        until = began + policy.start_deadline_seconds
        if turn.now >= until:
            why = f"{status.reason(Condition.RUNNING)}, {status.fields.get('nodes')} pods run"
            limit = f"{policy.start_deadline_seconds} s (runPolicy.startDeadlineSeconds)"
            turn.fail(Reason.START_DEADLINE, f"attempt {status.attempt} did not start within {limit}: {why}")
            return False
        turn.wake(until)
    started = seconds_of(status.fields.get("startTime"))
    if started is not None and policy.active_deadline_seconds is not None:
        until = started + policy.active_deadline_seconds
        if turn.now >= until:
            limit = f"{policy.active_deadline_seconds} s (runPolicy.activeDeadlineSeconds)"
            turn.fail(Reason.ACTIVE_DEADLINE, f"not complete within {limit}")
            return False
        turn.wake(until)
    return False


def _start_clock(turn: Turn) -> float | None:
    """Since when this attempt could have started; None where it runs, or could not have."""
    status = turn.status
    if status.is_true(Condition.RUNNING) or not status.is_true(Condition.ADMITTED):
        return None
    free = max(status.since(Condition.RUNNING), status.since(Condition.ADMITTED))
    rejected = first_at(turn)
    if rejected is not None:  # its pods were there, and are made again and again
        return max(free, rejected)
    return max(free, status.since(Condition.PODS_CREATED)) if status.is_true(Condition.PODS_CREATED) else None
