"""What all sections of a job share: strict, frozen, camelCase outside and snake_case inside, no unknown keys.

The types here are those that a structural Kubernetes schema can say too: enumerations, bounded numbers, patterns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

Item = TypeVar("Item")


class Section(BaseModel):
    """A mapping in a job. Code may build one by snake_case names; a file has only the camelCase ones."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_alias=True,
        validate_by_name=True,
        extra="forbid",
        frozen=True,
        strict=True,  # the API server does not turn "20" into 20 either
        allow_inf_nan=False,
        defer_build=True,  # a section is built with the document it belongs to, not once more by itself
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, given: Any) -> Any:
        """An empty value (``memory:``) means the default, as it does to the API server; an unknown key stays one."""
        if not isinstance(given, Mapping):
            return given
        known = {name for key, field in cls.model_fields.items() for name in (key, field.alias)}
        return {key: value for key, value in given.items() if value is not None or key not in known}


@dataclass(frozen=True, slots=True)
class WayOut:
    """What a user should write, or why a lower limit is there: ends the message where the annotated field breaks it."""

    text: str


@dataclass(frozen=True, slots=True)
class IntOrAuto:
    """Annotates ``int | Literal["auto"]``: a bounded whole number, or the word auto (int-or-string in Kubernetes)."""

    low: int
    high: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self._check, serialization=core_schema.plain_serializer_function_ser_schema(lambda value: value)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"x-kubernetes-int-or-string": True, "pattern": "^auto$", "minimum": self.low, "maximum": self.high}

    def _check(self, value: Any) -> Any:
        if value == "auto" or (type(value) is int and self.low <= value <= self.high):
            return value
        raise PydanticCustomError(
            "own_words",
            "{value} is neither auto nor a whole number from {low} to {high}",
            {"value": shown(value), "low": self.low, "high": self.high},
        )


@dataclass(frozen=True, slots=True)
class TokenOrText:
    """Annotates ``int | str``: a token id, or a text that is not empty (int-or-string in Kubernetes)."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self._check, serialization=core_schema.plain_serializer_function_ser_schema(lambda value: value)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"x-kubernetes-int-or-string": True, "minimum": 0, "minLength": 1}

    def _check(self, value: Any) -> Any:
        if (type(value) is int and value >= 0) or (isinstance(value, str) and value):
            return value
        raise PydanticCustomError(
            "own_words", "{value} is neither a token id (0 or more) nor a text", {"value": shown(value)}
        )


# A list in the file; a tuple in Python, since a job does not change.
Items = Annotated[tuple[Item, ...], Field(strict=False)]

FilePath = Annotated[str, Field(min_length=1, max_length=4096)]

Quantity = Annotated[
    str,
    Field(pattern=r"^(0\.0*[1-9][0-9]*|[1-9][0-9]*(\.[0-9]+)?)(Ki|Mi|Gi|Ti|k|M|G|T)?$", max_length=32),
    WayOut("write a number of bytes above 0 with Ki, Mi, Gi, Ti, k, M, G or T behind it, such as 76Gi"),
]

_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def quantity_bytes(quantity: str) -> int:
    """Bytes of a Kubernetes quantity such as ``76Gi`` or ``1.5G``, rounded down to a whole byte."""
    match = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", quantity)
    if match is None or match[2] not in _UNITS:
        raise ValueError(f"{quantity!r} is not a quantity such as 76Gi")
    whole, _, fraction = match[1].partition(".")
    # integers only: a float would lose bytes of large numbers
    return int(whole + fraction) * _UNITS[match[2]] // int("1" + "0" * len(fraction))


def shown(value: Any) -> str:
    """A value as a person wrote it in YAML, cut to a readable length."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else text[:76] + '..."'
