"""Turns pydantic's errors into faults that name field, value, limit and way out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from rollplex.api.base import Section, WayOut, shown
from rollplex.api.errors import Fault
from rollplex.api.fields import children, every_path, locate, section_of
from rollplex.api.rollout import REFUSED, RolloutSpec

KEY = "[key]"  # where pydantic puts errors about a key of a free-form mapping


def dotted(loc: Sequence[int | str]) -> str:
    """``("spec", "reward", 0, "name")`` as ``spec.reward.0.name``."""
    return ".".join(str(part) for part in loc)


def errors_of(error: ValidationError) -> list[ErrorDetails]:
    """The errors without those about a list's length that only follow from its bad items."""
    details = error.errors(include_url=False)
    locs = [detail["loc"] for detail in details]

    def follows(detail: ErrorDetails) -> bool:
        loc = detail["loc"]
        return detail["type"] == "too_short" and any(other[: len(loc)] == loc and other != loc for other in locs)

    return [detail for detail in details if not follows(detail)]


def fault_of(detail: ErrorDetails, root: type[Section]) -> Fault:
    """One fault of a document that was validated as ``root``."""
    loc, kind = detail["loc"], detail["type"]
    section, field = locate(root, loc)
    if loc[-1] == KEY:
        return Fault(dotted(loc[:-1]), f"the key {shown(detail['input'])} is not text; put it in quotes")
    if kind == "extra_forbidden":
        return Fault(dotted(loc), _unknown(section, str(loc[-1]), root))
    if kind == "missing":
        return Fault(dotted(loc), _missing(str(loc[-1]), field))
    message = detail["msg"]
    if kind in _MESSAGES:
        message = _MESSAGES[kind](detail["input"], detail.get("ctx", {}))
    if kind == "literal_error" and field is not None:
        message = _not_one_of(detail["input"], _choices(field.annotation))
    way_out = next((mark.text for mark in marks_of(field) if isinstance(mark, WayOut) and kind in _WITH_WAY_OUT), None)
    return Fault(dotted(loc), f"{message}; {way_out}" if way_out else message)


def sibling_meant(section: type[Section], key: str) -> str | None:
    """The known key of a section that an unknown one was probably meant to be."""
    by_lower = {known.lower().replace("_", ""): known for known in children(section)}
    match = get_close_matches(key.lower().replace("_", ""), by_lower, n=1, cutoff=0.7)
    return by_lower[match[0]] if match else None


def _unknown(section: type[Section], key: str, root: type[Section]) -> str:
    if section is RolloutSpec:
        meant = {refused.lower(): refused for refused in REFUSED}.get(key.lower().replace("_", ""))
        if meant is not None:
            return REFUSED[meant]
    sibling = sibling_meant(section, key)
    if sibling is not None:
        return f"unknown key; did you mean {sibling}?"
    elsewhere = [path for path, _ in every_path(root) if path.endswith(f".{key}")]
    if len(elsewhere) == 1:
        return f"unknown key; did you mean {elsewhere[0]}?"
    return f"unknown key; known here: {', '.join(children(section))}"


def _missing(key: str, field: FieldInfo | None) -> str:
    if field is None or not field.examples:
        return "is missing"
    # JSON without its quotes around keys and plain words is what a person would write in YAML
    example = json.dumps({key: field.examples[0]}).replace('"', "")[1:-1]
    return f"is missing; for example {example}"


def _choices(annotation: Any) -> list[str]:
    """The words of the Literal in an annotation."""
    arguments = get_args(annotation)
    if arguments and all(isinstance(argument, str) for argument in arguments):
        return list(arguments)
    return [word for argument in arguments for word in _choices(argument)]


def _not_one_of(value: Any, choices: list[str]) -> str:
    match = get_close_matches(str(value), choices, n=1)
    return f"{shown(value)} is not one of {', '.join(choices)}" + (f"; did you mean {match[0]}?" if match else "")


def marks_of(field: FieldInfo | None) -> list[Any]:
    """What annotates a field, or one of its alternatives: limits, ways out."""
    return [] if field is None else [*field.metadata, *_nested_metadata(field.annotation)]


def _nested_metadata(annotation: Any) -> list[Any]:
    """What annotates the alternatives of ``Quantity | None`` (not what is inside another section)."""
    if section_of(annotation) is not None:
        return []
    own = list(getattr(annotation, "__metadata__", ()))
    return own + [mark for argument in get_args(annotation) for mark in _nested_metadata(argument)]


def _wrong_type(wanted: str) -> Callable[[Any, Mapping[str, Any]], str]:
    def say(value: Any, _: Mapping[str, Any]) -> str:
        return f"{shown(value)} is not {wanted}"

    return say


def _number(wanted: str) -> Callable[[Any, Mapping[str, Any]], str]:
    def say(value: Any, _: Mapping[str, Any]) -> str:
        if isinstance(value, str) and value.replace(".", "", 1).lstrip("-").isdigit():
            return f"{shown(value)} is text; write it without quotes"
        return f"{shown(value)} is not {wanted}"

    return say


def _text(value: Any, _: Mapping[str, Any]) -> str:
    quote = "; put it in quotes" if isinstance(value, bool | int | float) else ""
    return f"{shown(value)} is not text{quote}"


# A lower bound's reason says nothing about an upper one; a text's form is what a number in its place lacks too.
_WITH_WAY_OUT = ("greater_than", "greater_than_equal", "string_pattern_mismatch", "string_type")

_MESSAGES: dict[str, Callable[[Any, Mapping[str, Any]], str]] = {
    "int_type": _number("a whole number"),
    "float_type": _number("a number"),
    "bool_type": _wrong_type("true or false"),
    "string_type": _text,
    "tuple_type": _wrong_type("a list"),
    "dict_type": _wrong_type("a mapping"),
    "model_type": _wrong_type("a mapping"),
    "finite_number": _wrong_type("a finite number"),
    "invalid_key": lambda value, _: f"the key {shown(value)} is not text; put it in quotes",
    "greater_than": lambda value, limit: f"{shown(value)} is not above {limit['gt']:g}",
    "greater_than_equal": lambda value, limit: f"{shown(value)} is below the minimum {limit['ge']:g}",
    "less_than": lambda value, limit: f"{shown(value)} is not below {limit['lt']:g}",
    "less_than_equal": lambda value, limit: f"{shown(value)} is above the maximum {limit['le']}",
    "too_short": lambda value, limit: f"the list has {len(value)} of at least {limit['min_length']} items",
    "too_long": lambda value, limit: f"the list has {len(value)} of at most {limit['max_length']} items",
    "string_too_short": lambda value, _: f"{shown(value)} is empty",
    "string_too_long": lambda value, limit: f"has {len(value)} characters; at most {limit['max_length']} are allowed",
    "string_pattern_mismatch": lambda value, _: f"{shown(value)} is malformed",
}
