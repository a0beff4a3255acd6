"""Walks the models by the names that users write: which field is at a path, which names are known there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import NoneType
from typing import Any, get_args

from pydantic.fields import FieldInfo

from rollplex.api.base import Section


def alias_of(name: str, field: FieldInfo) -> str:
    """The field's name in a file."""
    return field.alias or name


def section_of(annotation: Any) -> type[Section] | None:
    """The section that a field holds, directly, or None-able, or as items of a list; None for a plain value."""
    if isinstance(annotation, type):
        return annotation if issubclass(annotation, Section) else None
    inner = [section_of(argument) for argument in get_args(annotation) if argument not in (NoneType, Ellipsis)]
    return next((section for section in inner if section is not None), None)


def children(section: type[Section]) -> dict[str, FieldInfo]:
    """The section's fields by their names in a file."""
    return {alias_of(name, field): field for name, field in section.model_fields.items()}


def locate(root: type[Section], loc: Sequence[int | str]) -> tuple[type[Section], FieldInfo | None]:
    """The innermost section that ``loc`` passes through, and the field it ends at (None: no such field there)."""
    section: type[Section] = root
    field: FieldInfo | None = None
    inside: type[Section] | None = root
    for part in loc:
        if isinstance(part, int):
            continue  # an item of the list that the field is
        if inside is None:
            break  # within a free-form mapping: its field says enough
        section, field = inside, children(inside).get(part)
        inside = section_of(field.annotation) if field else None
    return section, field


def every_path(root: type[Section], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """All fields below a section, depth first, as (``spec.training.steps``, field); lists add no index."""
    for alias, field in children(root).items():
        path = f"{prefix}{alias}"
        yield path, field
        inner = section_of(field.annotation)
        if inner is not None:
            yield from every_path(inner, f"{path}.")
