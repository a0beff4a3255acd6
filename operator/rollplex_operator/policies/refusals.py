"""What the server would not take: why, whether it is worth trying again, and when."""

from __future__ import annotations

from dataclasses import dataclass

from rollplex_operator.backoff import growing
from rollplex_operator.names import Reason
from rollplex_operator.observation import Refusal
from rollplex_operator.policies.turn import Turn

FIRST_SECONDS, MOST_SECONDS = 2.0, 60.0
TRANSIENT_FIRST_SECONDS, TRANSIENT_MOST_SECONDS = 0.5, 30.0
TRANSIENT_TIMES = 4  # in a row, before it is worth saying and the pods that there are give their GPUs back

_WRONG = frozenset({400, 413, 422})  # the object, whoever asks and whenever


@dataclass(frozen=True, slots=True)
class Verdict:
    """``for_good``: trying again is useless. ``again``: when to (seconds since the epoch)."""

    reason: Reason
    message: str
    for_good: bool
    said: bool  # worth a condition, and the release of the pods that there are
    again: float


def judge(turn: Turn) -> Verdict | None:
    """Of all refusals of children, the worst: for good, else the one that takes longest."""
    found = [_judge(turn, each) for each in turn.observation.refusals if each.kind != "RollplexJob"]
    return max(found, key=lambda verdict: (verdict.for_good, verdict.said, verdict.again), default=None)


def _judge(turn: Turn, refusal: Refusal) -> Verdict:
    message = f"{refusal.kind} {refusal.name}: {refusal.message}"
    # admission policies and webhooks deny with any code, 422 too: that is no fault of the object as such
    denied = "denied request" in refusal.message or "denied the request" in refusal.message
    lasting = refusal.code in (403, 404, 409) or refusal.code in _WRONG
    first, most = (FIRST_SECONDS, MOST_SECONDS) if lasting else (TRANSIENT_FIRST_SECONDS, TRANSIENT_MOST_SECONDS)
    again = refusal.at + growing(refusal.count, first, most)
    said = lasting or refusal.count >= TRANSIENT_TIMES
    if refusal.code in _WRONG and not denied and refusal.kind == "Pod":
        return Verdict(Reason.INVALID_POD, message, True, True, again)
    if "exceeded quota" in refusal.message:
        return Verdict(Reason.QUOTA_EXCEEDED, message, False, said, again)
    if "violates PodSecurity" in refusal.message:
        namespace = turn.observation.job.namespace
        way_out = (
            "the hardware profile of this job needs more than this level allows; set the label with kubectl label "
            f"namespace {namespace} --overwrite pod-security.kubernetes.io/enforce=privileged"
        )
        return Verdict(Reason.POD_SECURITY, f"{message}; {way_out}", False, said, again)
    return Verdict(Reason.REFUSED, message, False, said, again)
