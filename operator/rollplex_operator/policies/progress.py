"""What the trainer says of itself: pod 0's /status while it runs, its termination message once it ended."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from rollplex_operator.names import Condition, Reason
from rollplex_operator.observation import PodView
from rollplex_operator.status import timestamp
from rollplex_operator.turn import Turn


def progress(turn: Turn) -> bool:
    """Fields step, targetStep, checkpoint, overlap and reward, and condition CheckpointSaved."""
    report = newest_report(turn)
    fields = turn.status.fields
    for name in ("step", "targetStep"):
        if (number := whole(report, name)) is not None:
            fields[name] = number
    if (reward := _real(report, "reward")) is not None:
        fields["reward"] = reward
    overlap = {name: value for name in ("hiddenPercent", "savedPercent") if (value := _real(report, name)) is not None}
    if overlap:
        fields["overlap"] = overlap
    saved = whole(report, "checkpoint")
    if saved is not None and saved != (fields.get("checkpoint") or {}).get("step"):
        fields["checkpoint"] = {"step": saved, "time": timestamp(turn.now)}
    if (kept := fields.get("checkpoint")) is not None:
        turn.status.set(Condition.CHECKPOINT_SAVED, "True", Reason.SAVED, f"step {kept['step']}")
    return False


def newest_report(turn: Turn) -> Mapping[str, Any]:
    """The last that pod 0 of the newest attempt said; {} where it said nothing yet."""
    drivers = sorted((pod for pod in turn.own if pod.index == 0), key=lambda pod: pod.attempt, reverse=True)
    for pod in drivers:
        if said := last_words(pod):
            return said
        read = turn.observation.progress
        if read is not None and read.pod_uid == pod.uid:
            return read.report
    return {}


def last_words(pod: PodView) -> Mapping[str, Any]:
    """The termination message of the pod's first rank container, where it is the contract's JSON."""
    if not pod.containers:
        return {}
    try:
        said = json.loads(pod.containers[0].termination_message or "null")
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def whole(report: Mapping[str, Any], name: str) -> int | None:
    """A whole number of a report; None where it is missing or something else."""
    value = report.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _real(report: Mapping[str, Any], name: str) -> float | None:
    value = report.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return round(float(value), 6)
