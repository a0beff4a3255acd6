from __future__ import annotations

import time
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollplex.reward.iou import Region, iou, mean_overlap, overlap, regions
from rollplex.reward.text import AnswerError


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[10, 20, 30, 40]", [(10, 20, 30, 40)]),
        ("(10,20,30,40)", [(10, 20, 30, 40)]),
        ('```json\n[{"bbox_2d": [1.5, 2, 3, 4], "label": "cube"}]\n```', [(1.5, 2, 3, 4)]),
        ("<|box_start|>(10,20),(30,40)<|box_end|>", [(10, 20, 30, 40)]),
        ('{"x1": 1, "y1": 2, "x2": 3, "y2": 4}', [(1, 2, 3, 4)]),
        ("[1,2,3,4] and [5,6,7,8]", [(1, 2, 3, 4), (5, 6, 7, 8)]),
        ("[[1,2,3,4],[5,6,7,8]]", [(1, 2, 3, 4), (5, 6, 7, 8)]),
        ("not [0,0,9,9]: <answer>[1,2,3,4]</answer>", [(1, 2, 3, 4)]),
        ("[30, 40, 10, 20]", []),  # turned around
        ("[1, 2, 1, 4]", []),  # no area
        ("[1, 2, 3]", []),
        ("[1e99, 0, 1e300, 1]", []),
        ("[a, b, c, d]", []),
        ("{broken", []),
        ("", []),
    ],
)
def test_boxes_of_a_text(text: str, found: list[Region]) -> None:
    assert regions(text, "box") == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[1.5, 3]", [(1.5, 3)]),
        ("from (2, 4) to [6, 8]", [(2, 4), (6, 8)]),
        ('{"start": 1, "end": 2.5}', [(1, 2.5)]),
        ("[4, 2]", []),
        ("[1, 2, 3, 4]", []),
    ],
)
def test_spans_of_a_text(text: str, found: list[Region]) -> None:
    assert regions(text, "span") == found


@pytest.mark.parametrize(
    ("a", "b", "value"),
    [
        ((0, 0, 2, 2), (0, 0, 2, 2), 1.0),
        ((0, 0, 2, 2), (1, 0, 3, 2), 2 / 6),
        ((0, 0, 2, 2), (2, 0, 4, 2), 0.0),
        ((0, 0, 4, 4), (1, 1, 2, 2), 1 / 16),
        ((0.0, 4.0), (2.0, 6.0), 2 / 6),
        ((0.0, 1.0), (5.0, 6.0), 0.0),
    ],
)
def test_overlap_by_hand(a: Region, b: Region, value: float) -> None:
    assert overlap(a, b) == overlap(b, a) == pytest.approx(value)


@pytest.mark.parametrize(
    ("given_", "right", "threshold", "value"),
    [
        ([], [(0, 2)], 0.0, 0.0),
        ([(0, 2)], [(0, 2)], 0.0, 1.0),
        ([(0, 2), (5, 6)], [(0, 2)], 0.0, 0.5),  # one too many
        ([(0, 2)], [(0, 2), (5, 6)], 0.0, 0.5),  # one too few
        ([(5, 6), (0, 2)], [(0, 2), (5, 6)], 0.0, 1.0),  # in another order
        ([(0, 2), (0, 2)], [(0, 2)], 0.0, 0.5),  # the same twice
        ([(0, 3)], [(0, 4)], 0.5, 1.0),
        ([(0, 1)], [(0, 4)], 0.5, 0.0),
    ],
)
def test_mean_overlap_matches_each_region_once(
    given_: list[Region], right: list[Region], threshold: float, value: float
) -> None:
    assert mean_overlap(given_, right, threshold) == value


@pytest.mark.parametrize(
    ("response", "answer", "kind", "value"),
    [
        ("[0, 0, 2, 2]", [0, 0, 2, 2], "box", 1.0),
        ("[0, 0, 2, 2]", [[0, 0, 2, 2], [5, 5, 6, 6]], "box", 0.5),
        ("[0, 0, 2, 2]", {"bbox_2d": [0, 0, 2, 2]}, "box", 1.0),
        ("[0, 0, 2, 2]", [{"bbox_2d": [0, 0, 2, 2], "label": "cube"}], "box", 1.0),
        ("[0, 0, 2, 2]", "[0, 0, 2, 2]", "box", 1.0),
        ("I see nothing", [0, 0, 2, 2], "box", 0.0),
        ("[0, 4]", [2, 6], "span", 2 / 6),
        ("[0, 4]", [[0, 4]], "span", 1.0),
        ("[0, 4] " * 101, [0, 4], "span", 0.0),
    ],
)
def test_iou_of_a_response(response: str, answer: Any, kind: Literal["box", "span"], value: float) -> None:
    assert iou(response, answer, kind) == pytest.approx(value)


@pytest.mark.parametrize("answer", [None, "left", [], [1, 2, 3], [3, 3, 1, 1], [[0, 0, 2, 2], "none"], 5])
def test_iou_refuses_an_answer_without_a_region(answer: Any) -> None:
    with pytest.raises(AnswerError, match=r"is no box \[x1, y1, x2, y2\] with x2 > x1"):
        iou("[0, 0, 1, 1]", answer, "box")


spans = st.tuples(st.floats(-1e6, 1e6), st.floats(0.001, 1e6)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(st.lists(spans, max_size=4), st.lists(spans, min_size=1, max_size=4))
def test_mean_overlap_is_a_share_and_one_only_for_equals(a: list[Region], b: list[Region]) -> None:
    assert 0.0 <= mean_overlap(a, b) <= 1.0 + 1e-9
    assert mean_overlap(b, b) == pytest.approx(1.0)


@pytest.mark.parametrize("text", ["[" * 200_000, "[1," * 60_000, "(1,2)" + " " * 100_000 + "x", "{" * 200_000])
def test_regions_take_no_long_time_for_a_degenerate_text(text: str) -> None:
    started = time.monotonic()
    regions(text, "box")
    assert time.monotonic() - started < 2
