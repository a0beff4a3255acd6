"""What verifiers read of a response: its text without special tokens, and the part that it marks as its answer."""

from __future__ import annotations

import re

_SPECIAL = re.compile(r"<\|[^|<>]*\|>")
_BOXED = "\\boxed{"
# "the answer is 5", "Answer: 5", "**Answer**: 5", "my final answer = 5"
_STATED = re.compile(r"\banswer\b[*_`\s]*(?:is|:|=)[*_`\s]*:?", re.IGNORECASE)


class AnswerError(ValueError):
    """The row's answer is nothing that the verifier can compare a response with."""


def plain(text: str) -> str:
    """Text without special tokens (``<|...|>``) and outer spaces."""
    return _SPECIAL.sub("", text).strip()


def marked(text: str) -> str | None:
    """Inside of the last ``<answer>...</answer>``, else of the last ``\\boxed{...}``; None without such a mark."""
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, max(end, 0))
    if start >= 0:
        return text[start + len("<answer>") : end].strip()
    start = text.rfind(_BOXED)
    if start < 0:
        return None
    depth, begin = 1, start + len(_BOXED)
    for at in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[begin:at].strip()
    return None  # never closed: the response was cut


def stated(text: str) -> str | None:
    """What follows the last "answer is", "answer:" or "answer ="; None where the text says nothing like it."""
    ends = [found.end() for found in _STATED.finditer(text)]
    return text[ends[-1] :].strip() if ends else None


def answers(answer: object) -> list[object]:
    """The right answers: one, or a list of which any is right."""
    return list(answer) if isinstance(answer, list | tuple) else [answer]
