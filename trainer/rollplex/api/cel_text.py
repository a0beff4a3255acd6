"""CEL by the piece: rules, texts, optional fields."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Cel:
    """An expression that must hold, and a CEL expression of the text that is said where it does not."""

    rule: str
    says: str
    field: str = ""  # below ``at``, such as .training.steps: where the fault is shown
    at: str = "spec"  # where the rule stands; "" is the whole document, [] an item of a list


def validation(cel: Cel, message: str) -> dict[str, Any]:
    """The rule as a schema holds it; ``message`` is said where the text itself cannot be made (a line end in it)."""
    shown = {"fieldPath": cel.field} if cel.field else {}
    return {"rule": cel.rule, "message": message.replace("`", ""), "messageExpression": cel.says, **shown}


def literal(text: str) -> str:
    """A CEL string."""
    return json.dumps(text, ensure_ascii=False)


def words(texts: Iterable[str]) -> str:
    """A CEL list of strings."""
    return f"[{', '.join(map(literal, texts))}]"


def given(value: str, otherwise: str) -> str:
    """The value of an optional field, or another where it is not given."""
    return f"(has({value}) ? {value} : {otherwise})"


def choice(value: str, texts: Mapping[str, str]) -> str:
    """The text that goes with a value; a lookup in a map would do, were its size not unknown to the server."""
    *most, last = texts.items()
    return (
        "(" + "".join(f"{value} == {literal(key)} ? {literal(text)} : " for key, text in most) + literal(last[1]) + ")"
    )


def say(template: str, *values: str) -> str:
    """A CEL expression of a text: each ``{}`` of the template becomes the text of the CEL expression in its place.

    ``format`` it is because the server's estimate of what string additions cost has no end.
    """
    if template.count("{}") != len(values):
        raise ValueError(f"{len(values)} values for {template!r}")
    pattern = literal(template.replace("%", "%%").replace("{}", "%s"))
    return f"{pattern}.format([{', '.join(values)}])" if values else literal(template)
