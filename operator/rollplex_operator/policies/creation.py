"""The pods of this attempt, all of them or none, and what has to be there before them."""

from __future__ import annotations

from rollplex_operator import children
from rollplex_operator.names import Condition, Reason
from rollplex_operator.pods import NEW_PODS
from rollplex_operator.policies import others
from rollplex_operator.policies.in_place import WHY
from rollplex_operator.policies.refusals import Verdict, judge
from rollplex_operator.policies.rejection import replaced_at
from rollplex_operator.policies.turn import Turn


def creation(turn: Turn) -> bool:
    """Condition PodsCreated; counters of a new job begin here."""
    status = turn.status
    if status.attempt is None:
        turn.begin_attempt()
        # kubectl leaves a column out where there is nothing
        status.fields = {"step": 0, "restarts": 0, "restartsCountedTowardsMax": 0} | status.fields
    if turn.blocked:
        return False
    if not status.is_true(Condition.PODS_CREATED) and not turn.current:
        chosen = children.resolve(turn.spec, turn.observation.server)
        status.fields["numa"] = {"pinning": chosen.pinning, "gpuAllocation": chosen.gpu_allocation}
        status.fields["gang"] = chosen.gang
    verdict = judge(turn)
    if verdict is not None and _refused(turn, verdict):
        return False
    others.apply(turn)
    if status.is_true(Condition.PODS_CREATED):
        return False
    missing = turn.missing
    if not missing:
        if not any(pod.deleting_since is not None or pod.uid in turn.deletes for pod in turn.current):
            message = WHY if status.fields.get("restart") == NEW_PODS else ""
            status.set(Condition.PODS_CREATED, "True", Reason.ALL_CREATED, message)
    elif turn.now < replaced_at(turn):
        turn.wake(replaced_at(turn))
    else:
        if status.reason(Condition.PODS_CREATED) in _OVER:
            status.set(Condition.PODS_CREATED, "False", Reason.CREATING)
        attempt = status.attempt
        assert attempt is not None
        job, settings = turn.observation.job, turn.observation.settings
        turn.creates += children.pods(job, turn.spec, turn.resolved, attempt, missing, settings)
    return False


# what stood in the way and does no longer; a refusal stands until all pods were taken
_OVER = frozenset({Reason.WAITING_FOR_OLD_PODS, Reason.NODE_LOST, Reason.SUSPENDED_BY_USER})


def _refused(turn: Turn, verdict: Verdict) -> bool:
    """Whether nothing is to be tried now."""
    status, early = turn.status, turn.now < verdict.again
    created = status.is_true(Condition.PODS_CREATED)  # then it is only a budget or the like: the pods do without it
    if verdict.for_good and not created:
        turn.fail(verdict.reason, verdict.message)
        return True
    if verdict.said and not created:
        if status.reason(Condition.PODS_CREATED) != verdict.reason:
            turn.warn(verdict.reason, verdict.message)
        status.set(Condition.PODS_CREATED, "False", verdict.reason, verdict.message, keep=True)
        if early:
            turn.delete(turn.current)  # a part of a gang would hold GPUs for nothing
    if early:
        turn.wake(verdict.again)
    return early
