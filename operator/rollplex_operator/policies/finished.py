"""A job that is over: its pods go as cleanPods says, it goes when its time is up, and nothing is ever made again."""

from __future__ import annotations

from rollplex.api.job import KIND
from rollplex_operator.decision import Delete
from rollplex_operator.policies.others import tidy
from rollplex_operator.policies.removal import remove
from rollplex_operator.policies.turn import Turn
from rollplex_operator.times import seconds_of


def finished(turn: Turn) -> None:
    """``runPolicy.cleanPods`` and ``ttlSecondsAfterFinished``."""
    turn.creates.clear()
    turn.applies.clear()
    if turn.job is None:
        return
    policy, job = turn.job.spec.run_policy, turn.observation.job
    if policy.clean_pods != "none":
        kept = ("Succeeded", "Failed") if policy.clean_pods == "running" else ()
        remove(turn, [pod for pod in turn.own if pod.phase not in kept])
    tidy(turn)
    ended = seconds_of(turn.status.fields.get("completionTime"))
    if ended is None or policy.ttl_seconds_after_finished is None:
        return
    due = ended + policy.ttl_seconds_after_finished
    if turn.now >= due:
        turn.deletes[job.uid] = Delete(KIND, job.name, job.uid)
    else:
        turn.wake(due)
