"""The reward ``choice``: 1.0 where the response picks the right letter of a multiple choice, else 0.0."""

from __future__ import annotations

import re
from typing import Any

from rollplex.reward.text import AnswerError, answers, marked, plain, stated

# Around a letter there may be brackets and emphasis: "(B)", "[b]", "**B**", "B.", "B)", "B:", "Option B".
_MARKS = r"[\s(\[{*_`\"'$]"
_OPEN = rf"{_MARKS}*(?:(?:[Oo]ption|[Cc]hoice){_MARKS}+)?"
_ALONE = re.compile(rf"{_OPEN}([A-Za-z])[)\]}}*_`\"'$.,;:!\s]*")
_LEADS = re.compile(rf"{_OPEN}([A-Za-z])(?:[)\]}}*_`]|\.(?!\w)|[;:]|\s[-–—]\s)")
# in running text "A ball" begins with a word, but "the answer is A ball" names a letter; "I" before a verb never does
_BEGINS = re.compile(rf"{_MARKS}*((?![AI]\s+[a-z])[A-Z])(?![\w'’])")
_SAID = re.compile(rf"{_OPEN}((?!I\s+[a-z])[A-Z])(?![\w'’])")
_ANYWHERE = (
    re.compile(r"\b(?:[Oo]ption|[Cc]hoice)\s+[(\[*]*([A-Za-z])(?![\w'’])"),
    re.compile(r"(?<!\w)[(\[]([A-Za-z])[)\]]"),
    re.compile(r"(?:^|\s)[*_`]*([A-Z])[*_`]*[.!]?$"),
)


def letter(text: str, choices: int = 26) -> str | None:
    """The letter that a text picks, in upper case, or None.

    Read first where it marks its answer (``<answer>``, ``\\boxed``), then after "answer is" or "answer:", then as a
    text that is or begins with a letter ("B", "(b)", "B. red"), then where a letter is called an option or stands in
    brackets, then as the last word; two different letters of one of these kinds pick nothing. Only the first
    ``choices`` letters of the alphabet are choices.
    """
    text = plain(text)
    inside = marked(text)
    if inside is not None:
        return _at_start(inside, choices, _SAID) or _anywhere(inside, choices)
    said = stated(text)
    found = _at_start(said, choices, _SAID) if said is not None else None
    return found or _at_start(text, choices, _BEGINS) or _anywhere(text, choices)


def choice(response_text: str, answer: Any, choices: int = 26) -> float:
    """1.0 if the response picks the answer's letter; the answer is a letter ("B", "(B)", "B. red") or a list of them.

    Raises:
        AnswerError: an answer without a letter.
    """
    right = set()
    for item in answers(answer):
        found = letter(item, choices) if isinstance(item, str) else None
        if found is None:
            raise AnswerError(f"answer {item!r} has no letter from A to {chr(64 + choices)}")
        right.add(found)
    return float(letter(response_text, choices) in right)


def _at_start(text: str, choices: int, capital: re.Pattern[str]) -> str | None:
    """The letter that is the whole text, or begins it as a label or a capital does."""
    match = _ALONE.fullmatch(text) or _LEADS.match(text) or capital.match(text)
    found = match[1].upper() if match else None
    return found if found in _letters(choices) else None


def _anywhere(text: str, choices: int) -> str | None:
    for pattern in _ANYWHERE:
        found = {name.upper() for name in pattern.findall(text)} & _letters(choices)
        if found:
            return found.pop() if len(found) == 1 else None
    return None


def _letters(choices: int) -> set[str]:
    return {chr(65 + index) for index in range(choices)}
