"""CEL of what may change once a job exists: all of it while it is suspended, a few fields at any time."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic.fields import FieldInfo

from rollplex.api.base import Section
from rollplex.api.cel_text import Cel, literal
from rollplex.api.cluster import MUTABLE, RunPolicySpec
from rollplex.api.fields import children
from rollplex.api.job import JobSpec

# A job that was found invalid has no pods yet: its user may mend it in place.
_EDITABLE = (
    "oldSelf.spec.runPolicy.suspend || has(oldSelf.status) && has(oldSelf.status.conditions) && "
    'oldSelf.status.conditions.exists(c, c.type == "Admitted" && c.status == "False" && c.reason == "InvalidSpec")'
)
_WAY_OUT = "set runPolicy.suspend to true first, then edit, then set it to false again"


def update_rules() -> Iterator[Cel]:
    """One rule for each field directly below spec (runPolicy: for what of it is not :data:`MUTABLE`)."""
    for alias, field in children(JobSpec).items():
        section = _section(field)
        if section is RunPolicySpec:
            kept = [f"{alias}.{key}" for key in children(RunPolicySpec) if key not in MUTABLE]
            yield from (_unchanged(path, [path]) for path in kept)
        else:
            yield _unchanged(alias, [alias] if section is None else list(_parts(section, alias)))


def _section(field: FieldInfo) -> type[Section] | None:
    """The section that a field always holds: none where it is optional or a list."""
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def _parts(section: type[Section], path: str) -> Iterator[str]:
    """The fields of a section and of those that it always holds."""
    for alias, field in children(section).items():
        inner = _section(field)
        if inner is None:
            yield f"{path}.{alias}"
        else:
            yield from _parts(inner, f"{path}.{alias}")


def _same(path: str) -> str:
    new, old = f"self.spec.{path}", f"oldSelf.spec.{path}"
    return f"(has({new}) ? has({old}) && {new} == {old} : !has({old}))"


def _unchanged(path: str, parts: list[str]) -> Cel:
    named = " + ".join(f"({_same(part)} ? {literal('')} : {literal(', ' + part)})" for part in parts)
    text = literal(f"%s cannot be changed while the job may have pods; {_WAY_OUT}")
    says = f"{text}.format([({named}).substring(2)])"
    return Cel(f"{_EDITABLE} || {_same(path)}", says, f".spec.{path}", at="")
