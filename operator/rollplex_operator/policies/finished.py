"""A job that has ended: which of its pods stay, and for how long the job itself does. It is never begun again."""

from __future__ import annotations

from rollplex_operator.decision import Delete
from rollplex_operator.names import TERMINAL
from rollplex_operator.status import seconds_of, timestamp
from rollplex_operator.turn import Turn


def finished(turn: Turn) -> bool:
    """``runPolicy.cleanPods`` and ``ttlSecondsAfterFinished``."""
    if turn.status.phase not in TERMINAL:
        return False
    turn.creates.clear()
    turn.applies.clear()
    fields = turn.status.fields
    ended = seconds_of(fields.setdefault("completionTime", timestamp(turn.now))) or turn.now
    if turn.job is None:
        return True
    policy = turn.spec.spec.run_policy
    if policy.clean_pods != "none":
        ends = ("Succeeded", "Failed") if policy.clean_pods == "running" else ()
        turn.delete([pod for pod in turn.own if pod.phase not in ends])
    if policy.ttl_seconds_after_finished is not None:
        due = ended + policy.ttl_seconds_after_finished
        if turn.now >= due:
            job = turn.observation.job
            turn.deletes[job.uid] = Delete("RollplexJob", job.name, job.uid)
        else:
            turn.wake(due)
    return True
