"""Makes what the attempt needs: first the other children, then its pods; all of them, or none that hold GPUs."""

from __future__ import annotations

from rollplex_operator import children
from rollplex_operator.decision import Delete
from rollplex_operator.names import ANNOTATION_CONTENT, Condition, Reason
from rollplex_operator.observation import Refusal
from rollplex_operator.policies.rejection import due_again, was_refused
from rollplex_operator.turn import Turn

LONGEST_WAIT = 120.0
_SERVERS_TROUBLE = (409, 429)  # and 5xx: says nothing of the pod
_POLICY_WORDS = ("denied request", "ValidatingAdmissionPolicy", "admission webhook")


def creation(turn: Turn) -> bool:
    """Condition PodsCreated."""
    status = turn.status
    others(turn)
    missing = turn.missing
    if not missing:
        if not any(was_refused(pod) or pod.deleting_since is not None for pod in turn.current):
            status.set(Condition.PODS_CREATED, "True", Reason.ALL_CREATED)
        return False
    if status.is_true(Condition.PODS_CREATED):
        return False  # a fault, which has been dealt with
    wait = _refused(turn)
    if status.is_true(Condition.FAILED):
        return False
    if wait is None and status.reason(Condition.PODS_CREATED) == Reason.REJECTED_BY_NODE:
        wait = due_again(turn)
    elif wait is None:
        status.set(Condition.PODS_CREATED, "False", Reason.CREATING, keep=True)
    if wait is not None and turn.now < wait:
        turn.wake(wait)
        return False
    if any(pod.deleting_since is not None for pod in turn.current):
        return False  # released ones have to be gone first
    view, job = turn.observation.job, turn.spec
    turn.creates += children.pods(view, job, turn.resolved, status.attempt or 0, missing, turn.observation.settings)
    return False


def others(turn: Turn) -> None:
    """Apply what differs from what it should be, and delete what is not needed any more."""
    view = turn.observation.job
    wanted = children.others(view, turn.spec, turn.resolved, turn.status.attempt or 0, turn.observation.settings)
    own = {(child.kind, child.name): child for child in turn.observation.children if child.owner_uid == view.uid}
    for manifest in wanted:
        there = own.pop((manifest["kind"], manifest["metadata"]["name"]), None)
        if there is None or there.content != manifest["metadata"]["annotations"][ANNOTATION_CONTENT]:
            turn.applies.append(manifest)
    for child in own.values():
        if not child.deleting:
            turn.deletes[child.uid] = Delete(child.kind, child.name, child.uid)


def _refused(turn: Turn) -> float | None:
    """When to try again what the server refused; None where nothing was.

    Where a refusal speaks about the pods themselves, those that were taken are given back: a part of a gang would hold
    GPUs and wait.
    """
    status = turn.status
    there = {pod.name for pod in turn.current} | {child.name for child in turn.observation.children}
    refusals = [
        refusal
        for refusal in turn.observation.refusals
        if refusal.kind != "RollplexJob" and (refusal.kind != "Pod" or refusal.name not in there)
    ]
    if not refusals:
        return None
    worst = max(refusals, key=lambda refusal: (refusal.count, refusal.at))
    retry = worst.at + min(2.0 ** (worst.count - 1), LONGEST_WAIT)
    if (worst.code in _SERVERS_TROUBLE and not _quota(worst)) or worst.code >= 500:
        return retry
    reason, message = _why(turn, worst)
    if reason == Reason.INVALID_POD:
        turn.fail(reason, message)
        return None
    if status.reason(Condition.PODS_CREATED) != reason:
        turn.warn(reason, message)
    status.set(Condition.PODS_CREATED, "False", reason, message, keep=True)
    if turn.now < retry:
        turn.delete(turn.current)
    return retry


def _quota(refusal: Refusal) -> bool:
    return "exceeded quota" in refusal.message


def _why(turn: Turn, refusal: Refusal) -> tuple[Reason, str]:
    message = f"{refusal.kind} {refusal.name}: {refusal.message}"
    if _quota(refusal):
        return Reason.QUOTA_EXCEEDED, message
    if "violates PodSecurity" in refusal.message:
        namespace = turn.observation.job.namespace
        return Reason.POD_SECURITY, (
            f"{message}; allow it with: kubectl label namespace {namespace} "
            "pod-security.kubernetes.io/enforce=privileged --overwrite"
        )
    by_policy = any(word in refusal.message for word in _POLICY_WORDS)
    if refusal.code == 422 and not by_policy:
        return Reason.INVALID_POD, message
    return Reason.REFUSED, message
