"""The reward ``exact``: 1.0 where the response is the answer, else 0.0."""

from __future__ import annotations

import re
from typing import Any

_SPECIAL = re.compile(r"<\|[^|<>]*\|>")


def normalised(text: str) -> str:
    """Text as it is compared: special tokens (``<|...|>``), outer spaces and one last full stop cut, case folded."""
    text = _SPECIAL.sub("", text).strip()
    return text.removesuffix(".").rstrip().casefold()


def exact(response_text: str, answer: Any) -> float:
    """1.0 if response and answer are equal when normalised; the answer is a text, a number, or a list of right ones."""
    answers = answer if isinstance(answer, list | tuple) else [answer]
    response = normalised(response_text)
    return float(any(response == normalised(str(right)) for right in answers))
