"""The named verifiers behind one signature, and where each of them runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from rollplex.api.reward import (
    ChoiceOptions,
    ExactOptions,
    FormatOptions,
    IouOptions,
    LengthOptions,
    NumericOptions,
    Options,
)
from rollplex.reward.choice import choice
from rollplex.reward.exact import exact
from rollplex.reward.format import has_format
from rollplex.reward.iou import iou
from rollplex.reward.length import length_penalty
from rollplex.reward.numeric import numeric


def needs_limit(options: Options) -> bool:
    """Whether the verifier may run without end, and so belongs into a worker process."""
    return isinstance(options, FormatOptions)


def verifier(options: Options, response_text: str, answer: Any, tokens: int) -> Callable[[], float]:
    """The call that scores a response of ``tokens`` tokens; it raises AnswerError for an answer that is no use to it.

    A worker that gets it imports the verifier's own module and nothing else.
    """
    match options:
        case ExactOptions():
            return partial(exact, response_text, answer)
        case ChoiceOptions():
            return partial(choice, response_text, answer, options.choices)
        case NumericOptions():
            return partial(numeric, response_text, answer, options.absolute, options.relative, options.percent)
        case IouOptions():
            return partial(iou, response_text, answer, options.kind, options.threshold)
        case FormatOptions():
            return partial(has_format, response_text, options.pattern, options.match)
        case LengthOptions():
            return partial(length_penalty, tokens, options.max_tokens, options.buffer_tokens)
