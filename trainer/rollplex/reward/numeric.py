"""The reward ``numeric``: 1.0 where the response's number is the answer within a tolerance, else 0.0."""

from __future__ import annotations

import math
import re
from typing import Any, Literal

from rollplex.reward.text import AnswerError, answers, marked, plain, stated

Percent = Literal["share", "ignore"]

# A minus sign counts unless it joins words or numbers ("3-4", "t-1"); commas count where they group thousands.
_NUMBER = re.compile(
    r"""(?<![\w./])(?P<sign>[-+\u2212])?[$€£]?
        (?P<whole>\d{1,3}(?:[,\u00a0\u2009\u202f]\d{3})+(?!\d)|\d+)?(?P<fraction>\.\d+)?(?P<exponent>[eE][-+]?\d+)?
        (?:/(?P<under>\d+)(?![\d/]))?(?P<percent>\s?%)?""",
    re.VERBOSE,
)
_GROUPING = re.compile(r"[,\u00a0\u2009\u202f]")


def numbers(text: str, percent: Percent = "share") -> list[float]:
    """All finite numbers of a text in order: ``-1,234.5``, ``2e-3``, ``3/4``, ``$5``; ``50%`` is 0.5 unless ignored."""
    found = []
    for match in _NUMBER.finditer(text):
        if match["whole"] is None and match["fraction"] is None:
            continue
        whole = _GROUPING.sub("", match["whole"] or "0")
        value = float(whole + (match["fraction"] or "") + (match["exponent"] or ""))
        if match["under"] is not None:
            if float(match["under"]) == 0:
                continue
            value /= float(match["under"])
        if match["sign"] is not None and match["sign"] != "+":
            value = -value
        if match["percent"] is not None and percent == "share":
            value /= 100.0
        if math.isfinite(value):
            found.append(value)
    return found


def number(text: str, percent: Percent = "share") -> float | None:
    """The number that a text gives as its answer, or None.

    The last one inside ``<answer>`` or ``\\boxed``, else the first one after "answer is" or "answer:", else the last.
    """
    text = plain(text)
    inside = marked(text)
    if inside is not None:
        return next(reversed(numbers(inside, percent)), None)
    said = stated(text)
    if said is not None and (found := numbers(said, percent)):
        return found[0]
    return next(reversed(numbers(text, percent)), None)


def numeric(
    response_text: str, answer: Any, absolute: float = 0.0, relative: float = 1e-6, percent: Percent = "share"
) -> float:
    """1.0 if |number - answer| <= max(absolute, relative * |answer|), else 0.0.

    Args:
        response_text: its number is found by :func:`number`.
        answer: a number, a text with one, or a list of which any is right.
        absolute: tolerance in the answer's unit.
        relative: tolerance as a share of the answer.
        percent: whether ``50%`` is 0.5, in response and answer alike, or the sign is ignored.

    Raises:
        AnswerError: an answer without a number.
    """
    right = [_answer(item, percent) for item in answers(answer)]
    given = number(response_text, percent)
    if given is None:
        return 0.0
    return float(any(abs(given - value) <= _tolerance(value, absolute, relative) for value in right))


def _tolerance(value: float, absolute: float, relative: float) -> float:
    """With room for rounding: in floats 1.1 is further than 0.1 from 1."""
    return max(absolute, relative * abs(value)) + 4 * math.ulp(value)


def _answer(answer: Any, percent: Percent) -> float:
    value: float | None = None
    if isinstance(answer, str):
        value = number(answer, percent)
    elif isinstance(answer, int | float) and not isinstance(answer, bool):
        value = float(answer)
    if value is None or not math.isfinite(value):
        raise AnswerError(f"answer {answer!r} has no number")
    return value
