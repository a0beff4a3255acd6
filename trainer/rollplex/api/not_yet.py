"""Parts of a job that a later version fills. ``rollplex train`` refuses them rather than ignore them.

A part that is built loses its line here; nothing else has to change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rollplex.api.base import Section, shown
from rollplex.api.errors import Fault
from rollplex.api.fields import alias_of
from rollplex.api.job import RollplexJob

# Field -> the values that work today; none: leave the field out.
NOT_YET: dict[str, tuple[str | int | bool, ...]] = {
    "spec.rollout.prefixFrom": ("engine",),
    "spec.schedule.decodeSMs": ("auto",),
    "spec.parallelism.train.tensor": (1,),
    "spec.parallelism.rollout.tensor": (1,),
    "spec.parallelism.placement": ("colocated",),
    "spec.memory.budget": (),
    "spec.memory.activations": ("auto", "keep", "recompute"),
    "spec.numa.pinning": ("auto", "container", "none"),
}
RANKS = 1


def not_yet(job: RollplexJob, ranks: int | None = None) -> list[Fault]:
    """What the job uses of :data:`NOT_YET`, and more ranks than can train today."""
    faults = [
        Fault(at, _message(value, works))
        for path, works in NOT_YET.items()
        for at, value, given in _values(job, path.split("."))
        if (value not in works if works else given)
    ]
    if ranks is not None and ranks > RANKS:
        faults.append(Fault("--ranks", _message(ranks, (RANKS,))))
    return faults


def unset_parts(job: RollplexJob) -> Iterator[list[str]]:
    """Keys of the fields that have to be left out, where the job does leave them out."""
    for path, works in NOT_YET.items():
        keys = path.split(".")
        if not works and not any(given for _, _, given in _values(job, keys)):
            yield keys


def _message(value: Any, works: tuple[str | int | bool, ...]) -> str:
    if not works:
        return "not yet; leave it out"
    return f"{shown(value)}: not yet; use {' or '.join(shown(work).strip(chr(34)) for work in works)}"


def _values(section: Section, keys: list[str], at: str = "") -> Iterator[tuple[str, Any, bool]]:
    """(path, value, whether the job gives it) of a field that has a value, once for each item of a list on the way."""
    name = next(name for name, field in type(section).model_fields.items() if alias_of(name, field) == keys[0])
    value, path = getattr(section, name), f"{at}{keys[0]}"
    if value is None:
        return
    if len(keys) == 1:
        yield path, value, name in section.model_fields_set
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _values(item, keys[1:], f"{path}.{index}.")
    else:
        yield from _values(value, keys[1:], f"{path}.")
