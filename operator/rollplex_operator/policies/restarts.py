"""A fault of one pod is a fault of the job: all its pods go and come again, or it has failed.

The next attempt and the counters are in the status before any pod is touched, so that a fault is counted once. Faults
that the pods mend in place (their containers restart where they are) are counted by the containers' restarts.
"""

from __future__ import annotations

from rollplex_operator.names import Condition, Reason
from rollplex_operator.policies import faults
from rollplex_operator.policies.reports import ranks
from rollplex_operator.policies.turn import Turn


def restarts(turn: Turn) -> bool:
    """Counts restarts, begins the next attempt, or fails the job."""
    if turn.status.attempt is None:
        return False
    fault = faults.find(turn)
    if fault is None:
        _in_place(turn)
    elif fault.weight == faults.Weight.FOR_GOOD:
        turn.fail(fault.reason, fault.message)
    elif _count(turn, 1, counts=fault.counts, why=fault.message):
        turn.warn(fault.reason, fault.message)
        turn.begin_attempt()
        turn.status.set(Condition.RUNNING, "False", Reason.RESTARTING, fault.message)
    return False


def _in_place(turn: Turn) -> None:
    """Restarts that happened in the pods since the last look."""
    counted = turn.status.number("inPlaceRestarts")
    most = max((each.restarts for pod in turn.current for each in ranks(pod)), default=0)
    if most <= counted:
        return
    why = f"a rank failed, and all containers were restarted in place ({most} times in these pods)"
    turn.status.fields["inPlaceRestarts"] = most
    if _count(turn, most - counted, counts=True, why=why):
        turn.warn(Reason.RESTARTED_IN_PLACE, why)
        turn.status.set(Condition.RUNNING, "False", Reason.RESTARTING, why)


def _count(turn: Turn, times: int, *, counts: bool, why: str) -> bool:
    """Whether the job may go on."""
    fields, most = turn.status.fields, turn.spec.spec.run_policy.max_restarts
    towards = turn.status.number("restartsCountedTowardsMax") + (times if counts else 0)
    if counts and towards > most:
        turn.fail(Reason.RESTARTS_EXHAUSTED, f"after {most} restarts (runPolicy.maxRestarts): {why}")
        return False
    fields["restarts"] = turn.status.number("restarts") + times
    fields["restartsCountedTowardsMax"] = towards
    return True
