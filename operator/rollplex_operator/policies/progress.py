"""How far the job is: the newest report of pod 0, by its /status while it runs and its last words when it ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rollplex_operator.names import Condition, Reason
from rollplex_operator.policies.reports import driver, number, report_of, step_of, whole
from rollplex_operator.policies.turn import Turn
from rollplex_operator.times import timestamp


def progress(turn: Turn) -> bool:
    """Fields step, checkpoint, overlap, reward; condition CheckpointSaved."""
    fields = turn.status.fields
    if turn.job is not None:
        fields["targetStep"] = turn.job.spec.training.steps
    report = newest_report(turn)
    step = step_of(report)
    if step is not None:
        fields["step"] = step
    reward = number(report.get("reward"))
    if reward is not None:
        fields["reward"] = reward
    overlap = {key: number(report.get(key)) for key in ("hiddenPercent", "savedPercent")}
    if any(value is not None for value in overlap.values()):
        fields["overlap"] = {key: value for key, value in overlap.items() if value is not None}
    _checkpoint(turn, report.get("checkpoint"))
    return False


def newest_report(turn: Turn) -> Mapping[str, Any]:
    """Of the highest attempt that reported; last words come after anything that was read."""
    read = turn.observation.progress
    for pod in sorted([*turn.own, *turn.gone], key=lambda pod: -pod.attempt):
        container = driver(pod)
        if container is None:
            continue
        if container.exit_code is not None and (last := report_of(container)):
            return last
        if read is not None and read.pod_uid == pod.uid:
            return read.report
    return {}


def _checkpoint(turn: Turn, said: Any) -> None:
    step = whole(said.get("step")) if isinstance(said, Mapping) else whole(said)
    if step is None:
        return
    known = turn.status.fields.get("checkpoint")
    if not isinstance(known, Mapping) or known.get("step") != step:
        turn.status.fields["checkpoint"] = {"step": step, "time": timestamp(turn.now)}
    turn.status.set(Condition.CHECKPOINT_SAVED, "True", Reason.SAVED, f"after step {step}")
