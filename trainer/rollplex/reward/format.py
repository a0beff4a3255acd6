"""The reward ``format``: 1.0 where the response has the form that a regular expression describes, else 0.0."""

from __future__ import annotations

import re
from functools import cache
from typing import Literal

from rollplex.reward.text import plain

Match = Literal["full", "search"]


def has_format(response_text: str, pattern: str, match: Match = "full") -> float:
    """1.0 if the pattern matches the whole response, or (``search``) some part of it.

    Special tokens and outer spaces are cut first; a dot matches line ends too. A pattern may take exponential time, so
    the pool calls this in a worker process under a time limit.
    """
    compiled = _compiled(pattern)
    text = plain(response_text)
    return float((compiled.fullmatch(text) if match == "full" else compiled.search(text)) is not None)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.DOTALL)
