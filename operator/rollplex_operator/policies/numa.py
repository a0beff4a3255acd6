"""Whether every rank's CPUs, memory and GPU are on one NUMA node, as the trainer's preflight found it inside the pods.

``numa`` of the report: ``{"aligned": true, false or null, "reason": "CpusOnOneNode", "detail": "words for people"}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rollplex_operator.names import Condition, Reason
from rollplex_operator.policies.progress import newest_report
from rollplex_operator.policies.reports import LONGEST
from rollplex_operator.policies.turn import Turn


def numa(turn: Turn) -> bool:
    """Condition NumaAligned. What the server did to the pods is said before what their ranks found."""
    status = turn.status
    if turn.resolved.pinning == "none":
        status.set(Condition.NUMA_ALIGNED, "Unknown", Reason.NOT_REPORTED, "numa.pinning is none: nothing is pinned")
        return False
    poorer = next((pod for pod in turn.current if pod.qos not in ("", "Guaranteed")), None)
    found = newest_report(turn).get("numa") if turn.current else None
    if poorer is not None:
        message = (
            f"pod {poorer.name} is {poorer.qos}, not Guaranteed, so it gets no CPUs of its own: a LimitRange or an "
            "admission policy of the namespace changed its requests or limits; exempt these pods from it"
        )
        if status.reason(Condition.NUMA_ALIGNED) != Reason.NOT_GUARANTEED:
            turn.warn(Reason.NOT_GUARANTEED, message)
        status.set(Condition.NUMA_ALIGNED, "False", Reason.NOT_GUARANTEED, message, keep=True)
    elif isinstance(found, Mapping):
        _reported(turn, found)
    elif status.reason(Condition.NUMA_ALIGNED) == Reason.NOT_GUARANTEED:
        status.set(Condition.NUMA_ALIGNED, "Unknown", Reason.NOT_REPORTED)
    return False


def _reported(turn: Turn, found: Mapping[str, Any]) -> None:
    aligned, detail = found.get("aligned"), str(found.get("detail") or "")[:LONGEST]
    if aligned is True:
        turn.status.set(Condition.NUMA_ALIGNED, "True", Reason.ALIGNED, detail)
    elif aligned is False:
        crowded = found.get("reason") == Reason.CPUS_ON_ONE_NODE
        turn.status.set(
            Condition.NUMA_ALIGNED, "False", Reason.CPUS_ON_ONE_NODE if crowded else Reason.MISALIGNED, detail
        )
    else:
        turn.status.set(Condition.NUMA_ALIGNED, "Unknown", Reason.NOT_REPORTED, detail)
