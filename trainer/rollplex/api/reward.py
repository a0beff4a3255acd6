"""``spec.reward``: the parts of a weighted sum."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_serializer, field_validator
from pydantic_core import PydanticCustomError

from rollplex.api.base import Section, WayOut, shown

RewardName = Literal["exact", "choice", "numeric", "iou", "format", "length"]


class ExactOptions(Section):
    """``exact`` has none."""


class ChoiceOptions(Section):
    """Options of ``choice``."""

    choices: int = Field(26, description="Letters that are choices, from A on; others are words.", ge=2, le=26)


class NumericOptions(Section):
    """Options of ``numeric``: a number is right within the larger one of both tolerances."""

    absolute: float = Field(0.0, description="Tolerance in the unit of the answer.", ge=0, le=1000000000)
    relative: float = Field(1e-6, description="Tolerance as a share of the answer.", ge=0, le=1)
    percent: Literal["share", "ignore"] = Field(
        "share", description="Whether 50% is 0.5, in response and answer alike, or 50."
    )


class IouOptions(Section):
    """Options of ``iou``."""

    kind: Literal["box", "span"] = Field(
        description="What is compared: boxes [x1, y1, x2, y2], or time spans [start, end].", examples=["box"]
    )
    threshold: float = Field(
        0.0, description="IoU from which a pair counts, as 1; at 0 pairs count by their IoU.", ge=0, le=1
    )


class FormatOptions(Section):
    """Options of ``format``."""

    pattern: str = Field(
        description="Python regular expression; a dot matches line ends too.",
        examples=["<answer>.+</answer>"],
        min_length=1,
        max_length=4096,
    )
    match: Literal["full", "search"] = Field(
        "full", description="Whether it must match the whole response or a part of it."
    )

    @field_validator("pattern")
    @classmethod
    def _pattern_compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise PydanticCustomError(
                "own_words",
                "{value} is no regular expression: {error}",
                {"value": shown(pattern), "error": str(error)},
            ) from None
        return pattern


class LengthOptions(Section):
    """Options of ``length``."""

    max_tokens: int = Field(
        description="Response tokens from which on the value is -1.", examples=[512], ge=1, le=1048576
    )
    buffer_tokens: int = Field(
        description="Tokens before that over which it falls from 0 to -1.", examples=[128], ge=0, le=1048576
    )

    @field_validator("buffer_tokens")
    @classmethod
    def _buffer_lies_below_maximum(cls, buffer: int, info: ValidationInfo) -> int:
        most = info.data.get("max_tokens", buffer)  # absent where it is wrong itself
        if buffer > most:
            raise PydanticCustomError(
                "own_words",
                "{buffer} is above maxTokens {most}, so that the shortest response would be punished; lower it",
                {"buffer": buffer, "most": most},
            )
        return buffer


Options = ExactOptions | ChoiceOptions | NumericOptions | IouOptions | FormatOptions | LengthOptions

OPTIONS: Mapping[str, type[Options]] = {
    "exact": ExactOptions,
    "choice": ChoiceOptions,
    "numeric": NumericOptions,
    "iou": IouOptions,
    "format": FormatOptions,
    "length": LengthOptions,
}


class RewardSpec(Section):
    """One verifier: a named one, or a Python function of the user's."""

    name: RewardName | None = Field(None, description="A verifier of ours; give either name or python.")
    python: Annotated[
        str | None,
        Field(pattern=r"^.+\.py:[A-Za-z_][A-Za-z0-9_]*$", max_length=4096),
        WayOut("write FILE.py:FUNCTION, such as /data/rewards.py:grounded"),
    ] = Field(None, description="A function in a file, as FILE.py:FUNCTION; give either name or python.")
    weight: float = Field(
        1.0, description="Factor of this part in the sum; below 0 it is a penalty.", ge=-1000000, le=1000000
    )
    timeout_seconds: float = Field(
        10.0,
        description="A call of a Python function, or of format, that takes longer is killed, scored 0 and counted.",
        gt=0,
        le=3600,
    )
    options: dict[str, Any] = Field(default_factory=dict, description="Parameters of a named verifier, see below.")

    def parsed_options(self) -> Options:
        """The options as the named verifier's model; raises pydantic's ValidationError, or KeyError without a name."""
        return OPTIONS[str(self.name)].model_validate(self.options, by_alias=True, by_name=False)

    @field_serializer("options")
    def _with_defaults(self, options: dict[str, Any]) -> dict[str, Any]:
        """A resolved job shows every option; one that is not valid shows them as given."""
        try:
            return self.parsed_options().model_dump(by_alias=True)
        except (ValidationError, KeyError):
            return options
