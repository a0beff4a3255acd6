"""Whether each rank got CPUs and memory beside its GPU: what the trainer's preflight found, or why it cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rollplex_operator.names import Condition, Reason
from rollplex_operator.policies.progress import newest_report
from rollplex_operator.turn import Turn

_REASONS = {str(reason): reason for reason in (Reason.ALIGNED, Reason.CPUS_ON_ONE_NODE, Reason.MISALIGNED)}


def numa(turn: Turn) -> bool:
    """Condition NumaAligned."""
    status = turn.status
    loose = next((pod for pod in turn.current if pod.qos and pod.qos != "Guaranteed"), None)
    pinned = turn.resolved.pinning != "none"
    if pinned and loose is not None:
        message = f"{loose.name} is {loose.qos}, not Guaranteed: a policy changed its requests, so no CPU is its own"
        if status.reason(Condition.NUMA_ALIGNED) != Reason.NOT_GUARANTEED:
            turn.warn(Reason.NOT_GUARANTEED, message)
        status.set(Condition.NUMA_ALIGNED, "False", Reason.NOT_GUARANTEED, message)
        return False
    found = newest_report(turn).get("numa")
    if not isinstance(found, Mapping):
        return False  # as it was last reported in this attempt
    aligned, detail = found.get("aligned"), _text(found.get("detail"))
    if aligned is True:
        status.set(Condition.NUMA_ALIGNED, "True", Reason.ALIGNED, detail)
    elif aligned is False:
        reason = _REASONS.get(_text(found.get("reason")), Reason.MISALIGNED)
        status.set(Condition.NUMA_ALIGNED, "False", reason, detail)
    else:
        status.set(Condition.NUMA_ALIGNED, "Unknown", Reason.NOT_REPORTED, detail)
    return False


def _text(value: Any) -> str:
    return value[:1000] if isinstance(value, str) else ""
