"""From what is observed to what is to be written. Pure: no I/O, no clock, no memory but that of parsing a job once."""

from __future__ import annotations

from rollplex_operator.decision import Decision
from rollplex_operator.observation import Observation
from rollplex_operator.policies import POLICIES
from rollplex_operator.policies.finished import finished
from rollplex_operator.policies.turn import Turn
from rollplex_operator.status import Status


def decide(observation: Observation, now: float) -> Decision:
    """What brings the job nearer to where it should be.

    Args:
        observation: all that is known.
        now: seconds since the epoch.
    """
    job = observation.job
    if job.deleting:
        return Decision()  # its children go with it
    turn = Turn(observation, now, Status(job.status, job.generation, now))
    for policy in POLICIES:
        if policy(turn) or turn.ended:
            break
    if turn.ended:
        finished(turn)
    return turn.decision()
