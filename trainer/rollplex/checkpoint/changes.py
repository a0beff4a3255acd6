"""What has changed in a job since its checkpoint, and whether the run can go on with it.

Fixed is what decides which samples are drawn, what counts as a good answer and what the saved state means: another
value would join two different runs under one name. What is listed in :data:`FREE` is not of that kind: how long, how
fast, where, how it is watched, and the dials of the update, which people turn while a run goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rollplex.api.base import shown
from rollplex.api.errors import Fault, JobError

FREE = (
    "metadata",
    "spec.training.steps",
    "spec.training.microBatchTokens",
    "spec.training.maxSkippedUpdates",
    "spec.training.optimizer",
    "spec.algorithm.clip",
    "spec.algorithm.kl.coefficient",
    "spec.rollout.parityEverySteps",
    "spec.rollout.stallSeconds",
    "spec.data.decodeTimeoutSeconds",
    "spec.data.workers",
    "spec.data.cache",
    "spec.reward.timeoutSeconds",
    "spec.model.shape",
    "spec.schedule",
    "spec.parallelism",
    "spec.memory",
    "spec.checkpoint",
    "spec.evaluation",
    "spec.tracking",
    "spec.image",
    "spec.nodes",
    "spec.hardware",
    "spec.numa",
    "spec.volumes",
    "spec.envFrom",
    "spec.runPolicy",
    "spec.scheduling",
    "spec.podTemplate",
)
# What these name is compared by content, so it may lie elsewhere now.
BY_CONTENT = {"spec.data.train": "data", "spec.model.path": "model"}
WAY_OUT = "put it back, start anew with --fresh (the old run is moved aside), or choose another --name"


@dataclass(frozen=True, slots=True)
class Change:
    """One field, before and now."""

    path: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.path}: {self.old} -> {self.new}"


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """Every field of a job (as plain data) that differs, in the job's order."""
    before, now = dict(_leaves(old)), dict(_leaves(new))
    paths = dict.fromkeys([*now, *before])
    return [
        Change(path, before.get(path, "not set"), now.get(path, "not set"))
        for path in paths
        if before.get(path) != now.get(path)
    ]


def is_free(path: str) -> bool:
    """Whether a run may go on with another value of this field (items of a list by their number)."""
    plain = ".".join(part for part in path.split(".") if not part.isdecimal())
    return any(plain == free or plain.startswith(f"{free}.") for free in FREE)


def harmless_changes(saved: Mapping[str, Any], job: Mapping[str, Any], contents: Mapping[str, str]) -> list[Change]:
    """What has changed and does no harm.

    Args:
        saved: the checkpoint's state: ``job`` and ``contents``.
        job: the job now, resolved, as plain data.
        contents: fingerprints now of what ``BY_CONTENT`` names, and of the code behind fields, under their paths.
            Whether changed code means another reward nobody can tell, so that it is listed; a checkpoint of before
            code was noted says nothing of it.

    Raises:
        JobError: a fixed field has another value; every one with its old and new value.
    """
    faults, harmless = [], []
    for path, key in BY_CONTENT.items():
        was, now = saved["contents"][key], contents[key]
        if was != now:
            faults.append(Fault(path, f"the content has changed since the checkpoint: {was} -> {now}; {WAY_OUT}"))
    for change in changes(saved["job"], job):
        if change.path in BY_CONTENT or is_free(change.path):
            harmless.append(change)
        else:
            faults.append(Fault(change.path, f"{change.old} -> {change.new} since the checkpoint; {WAY_OUT}"))
    if faults:
        raise JobError(faults)
    was = saved["contents"]
    code = [
        path for path in contents if path not in BY_CONTENT.values() and was.get(path, contents[path]) != contents[path]
    ]
    return harmless + [Change(path, f"its file had {was[path]}", f"it has {contents[path]}") for path in code]


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """(field, value as a person writes it) of every plain value; an empty list or mapping is one too."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple) and value:
        for index, inner in enumerate(value):
            yield from _leaves(inner, f"{path}.{index}")
    elif value is not None:
        yield path, {"[]": "empty", "{}": "empty", "()": "empty"}.get(repr(value)) or shown(value)
