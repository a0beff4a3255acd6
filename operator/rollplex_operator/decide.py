"""From what is observed to what is to be written. Pure: no I/O, no clock, no memory but that of parsing a job once."""

from __future__ import annotations

from rollplex_operator.decision import Decision
from rollplex_operator.names import Condition, Reason
from rollplex_operator.observation import Observation
from rollplex_operator.policies import POLICIES
from rollplex_operator.status import Status
from rollplex_operator.turn import Turn


def decide(observation: Observation, now: float) -> Decision:
    """What brings the job nearer to where it should be.

    Args:
        observation: all that is known.
        now: seconds since the epoch.
    """
    job = observation.job
    if job.deleting:
        return Decision()  # the children go with their owner
    status = Status(job.status, job.generation, now)
    status.default(Condition.ADMITTED, "Unknown", Reason.VALID)
    status.default(Condition.PODS_CREATED, "False", Reason.CREATING)
    status.default(Condition.RUNNING, "False", Reason.STARTING)
    status.default(Condition.SUSPENDED, "False", Reason.NOT_SUSPENDED)
    status.default(Condition.COMPLETE, "False", Reason.NOT_YET)
    status.default(Condition.FAILED, "False", Reason.NONE)
    status.default(Condition.NUMA_ALIGNED, "Unknown", Reason.NOT_REPORTED)
    status.default(Condition.CHECKPOINT_SAVED, "False", Reason.NO_CHECKPOINT)
    turn = Turn(observation, now, status)
    for policy in POLICIES:
        if policy(turn):
            break
    return turn.decision()
