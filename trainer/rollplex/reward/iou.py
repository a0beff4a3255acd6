"""The reward ``iou``: how well a response's boxes or time spans cover the answer's, from 0.0 to 1.0."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rollplex.reward.text import AnswerError, marked, plain

Kind = Literal["box", "span"]
Region = tuple[float, ...]  # (x1, y1, x2, y2) of a box, (start, end) of a span

_NUMBER = r"\s*([-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,3})?)\s*"
_PAIR = rf"[\[(]{_NUMBER},{_NUMBER}[\])]"
_PATTERNS: dict[Kind, tuple[re.Pattern[str], ...]] = {
    "box": (re.compile(rf"[\[(]{','.join([_NUMBER] * 4)}[\])]"), re.compile(rf"{_PAIR}\s*(?:,\s*)?{_PAIR}")),
    "span": (re.compile(_PAIR),),
}
_KEYS: dict[Kind, tuple[str, ...]] = {"box": ("x1", "y1", "x2", "y2"), "span": ("start", "end")}
_OBJECT = re.compile(r"\{[^{}]*\}")


def regions(text: str, kind: Kind) -> list[Region]:
    """Boxes or spans in a text, in order, those without an extent left out.

    Read are bracket lists of four or two numbers (so also ``{"bbox_2d": [10, 20, 30, 40]}``), a box as two points
    ``(10, 20), (30, 40)``, and JSON objects with the keys x1, y1, x2, y2 or start, end.
    """
    text = plain(text)
    inside = marked(text)
    text = inside if inside is not None else text
    found = [(match.start(), tuple(map(float, match.groups()))) for match in _matches(text, kind)]
    for match in _OBJECT.finditer(text):
        region = _of_object(match[0], kind)
        if region is not None:
            found.append((match.start(), region))
    return [region for _, region in sorted(found) if _has_extent(region)]


def overlap(a: Region, b: Region) -> float:
    """Intersection over union of two boxes or two spans, each with an extent."""
    half = len(a) // 2
    shared = size_a = size_b = 1.0
    for low, high in zip(range(half), range(half, 2 * half), strict=True):
        shared *= max(0.0, min(a[high], b[high]) - max(a[low], b[low]))
        size_a *= a[high] - a[low]
        size_b *= b[high] - b[low]
    return shared / (size_a + size_b - shared)


def mean_overlap(given: Sequence[Region], right: Sequence[Region], threshold: float = 0.0) -> float:
    """Sum of the overlaps of matched pairs over the larger number of regions, so that guessing many earns nothing.

    Pairs are matched by descending overlap, each region once. With a threshold a pair counts 1 from there on, else 0.
    """
    pairs = sorted(
        ((overlap(a, b), i, j) for i, a in enumerate(given) for j, b in enumerate(right)),
        key=lambda pair: (-pair[0], pair[1], pair[2]),
    )
    total, taken_a, taken_b = 0.0, set(), set()
    for value, i, j in pairs:
        if i not in taken_a and j not in taken_b:
            taken_a.add(i)
            taken_b.add(j)
            total += float(value >= threshold) if threshold else value
    return total / max(len(given), len(right), 1)


def iou(response_text: str, answer: Any, kind: Kind, threshold: float = 0.0) -> float:
    """:func:`mean_overlap` of the regions in a response and the answer's, in the same units.

    Args:
        response_text: read by :func:`regions`.
        answer: one region, a list of regions, or a text or mapping as a response may have it.
        kind: box or span.
        threshold: overlap from which a pair counts, as 1; 0: pairs count by their overlap.

    Raises:
        AnswerError: an answer without a region, or with one that has no extent.
    """
    right = _answer(answer, kind)
    given = regions(response_text, kind)
    # More regions than this cannot earn anything worth the time that matching them takes.
    return mean_overlap(given, right, threshold) if len(given) <= 100 * len(right) else 0.0


def _matches(text: str, kind: Kind) -> list[re.Match[str]]:
    for pattern in _PATTERNS[kind]:
        found = list(pattern.finditer(text))
        if found:
            return found
    return []


def _of_object(text: str, kind: Kind) -> Region | None:
    try:
        fields = json.loads(text)
    except json.JSONDecodeError:
        return None
    values = [fields.get(key) for key in _KEYS[kind]]
    return tuple(map(float, values)) if all(_is_number(value) for value in values) else None


def _answer(answer: Any, kind: Kind) -> list[Region]:
    size = len(_KEYS[kind])
    if isinstance(answer, str):
        found = regions(answer, kind)
    elif isinstance(answer, Mapping):
        found = regions(json.dumps(dict(answer)), kind)
    elif isinstance(answer, list | tuple) and len(answer) == size and all(_is_number(value) for value in answer):
        found = [tuple(map(float, answer))]
    elif isinstance(answer, list | tuple):
        found = [region for item in answer for region in _answer(item, kind)] if answer else []
    else:
        found = []
    if not found or not all(_has_extent(region) for region in found):
        form = (
            "box [x1, y1, x2, y2] with x2 > x1 and y2 > y1" if kind == "box" else "span [start, end] with end > start"
        )
        raise AnswerError(f"answer {answer!r} is no {form}, and no list of them")
    return found


def _has_extent(region: Region) -> bool:
    """Also false where areas would overflow or vanish in a float."""
    half = len(region) // 2
    return max(map(abs, region)) < 1e12 and all(region[half + axis] - region[axis] > 1e-9 for axis in range(half))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
