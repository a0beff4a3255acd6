from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollplex.reward.numeric import number, numbers, numeric
from rollplex.reward.text import AnswerError


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("3", [3.0]),
        ("-3.5", [-3.5]),
        ("\u22123.5", [-3.5]),
        ("+7", [7.0]),
        (".5 and 0.25", [0.5, 0.25]),
        ("1,234,567.5", [1234567.5]),
        ("1\u202f234", [1234.0]),
        ("1,2345", [1.0, 2345.0]),
        ("2e-3, 1E6", [0.002, 1e6]),
        ("$1,000 or 50 kg.", [1000.0, 50.0]),
        ("50%", [0.5]),
        ("12.5 %", [0.125]),
        ("3/4", [0.75]),
        ("1/0", []),
        ("3-4", [3.0, 4.0]),
        ("x=-4", [-4.0]),
        ("v1.2.3 of model5", []),
        ("1e999", []),
        ("none", []),
    ],
)
def test_numbers_of_a_text(text: str, found: list[float]) -> None:
    assert numbers(text) == found


def test_numbers_with_percent_signs_ignored() -> None:
    assert numbers("50%, 5", percent="ignore") == [50.0, 5.0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("I count 2 red and 3 blue, so 5", 5.0),
        ("The answer is 5: 2 red and 3 blue", 5.0),
        ("Answer: 5 (2 + 3)", 5.0),
        ("the answer is clear: 7", 7.0),
        ("2 or 3 <answer>4 + 1 = 5</answer> 6", 5.0),
        (r"\boxed{\frac{x}{2}} no, \boxed{5}", 5.0),
        ("<answer>none</answer> 5", None),
        ("5<|im_end|>", 5.0),
        ("nothing", None),
        ("", None),
    ],
)
def test_number_that_a_text_gives(text: str, value: float | None) -> None:
    assert number(text) == value


@pytest.mark.parametrize(
    ("response", "answer", "options", "value"),
    [
        ("5", 5, {}, 1.0),
        ("5", "5", {}, 1.0),
        ("five", 5, {}, 0.0),
        ("0.30000000000000004", 0.3, {}, 1.0),
        ("5.1", 5, {}, 0.0),
        ("1.1", 1, {"absolute": 0.1}, 1.0),  # 1.1 - 1 is a little more than 0.1 in floats
        ("5.11", 5, {"absolute": 0.1}, 0.0),
        ("110", 100, {"relative": 0.1}, 1.0),
        ("111", 100, {"relative": 0.1}, 0.0),
        ("-110", -100, {"relative": 0.1}, 1.0),
        ("1", 0, {"relative": 0.5}, 0.0),
        ("0", 0, {}, 1.0),
        ("50%", 0.5, {}, 1.0),
        ("50%", 50, {}, 0.0),
        ("50%", 50, {"percent": "ignore"}, 1.0),
        ("50", "50%", {"percent": "ignore"}, 1.0),
        ("1,234", "1234", {}, 1.0),
        ("3", [2, "3"], {}, 1.0),
    ],
)
def test_numeric_compares_within_a_tolerance(response: str, answer: Any, options: Any, value: float) -> None:
    assert numeric(response, answer, **options) == value


@pytest.mark.parametrize("answer", ["red", None, True, float("nan"), {"a": 1}, [1, "red"]])
def test_numeric_refuses_an_answer_without_a_number(answer: Any) -> None:
    with pytest.raises(AnswerError, match="has no number"):
        numeric("5", answer)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numeric_reads_what_python_writes(value: float) -> None:
    assert numeric(f"it is {value!r}", value, relative=0.0) == 1.0


@pytest.mark.parametrize("text", ["1" * 200_000, "1," * 100_000, "1/" * 100_000 + "9" * 5000, "-" * 200_000])
def test_numbers_take_no_long_time_for_a_degenerate_text(text: str) -> None:
    started = time.monotonic()
    numbers(text)
    assert time.monotonic() - started < 2
