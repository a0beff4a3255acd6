from __future__ import annotations

from typing import Literal

import pytest

from rollplex.reward.format import has_format
from rollplex.reward.length import length_penalty

THINKS = r"<think>.+</think>\s*<answer>[^<]+</answer>"


@pytest.mark.parametrize(
    ("response", "pattern", "match", "value"),
    [
        ("<think>a\nb</think>\n<answer>red</answer><|im_end|>", THINKS, "full", 1.0),
        ("<think>a</think> so <answer>red</answer>", THINKS, "full", 0.0),
        ("<answer>red</answer>", THINKS, "full", 0.0),
        ("well: <think>a</think><answer>red</answer> ok", THINKS, "search", 1.0),
        ("", THINKS, "search", 0.0),
        ("Red", "red", "full", 0.0),
        ("Red", "(?i)red", "full", 1.0),
    ],
)
def test_format_of_a_response(response: str, pattern: str, match: Literal["full", "search"], value: float) -> None:
    assert has_format(response, pattern, match) == value


@pytest.mark.parametrize(
    ("tokens", "most", "buffer", "value"),
    [
        (0, 10, 4, 0.0),
        (6, 10, 4, 0.0),
        (7, 10, 4, -0.25),
        (9, 10, 4, -0.75),
        (10, 10, 4, -1.0),
        (11, 10, 4, -1.0),
        (10, 10, 0, 0.0),
        (11, 10, 0, -1.0),
        (5, 10, 10, -0.5),
    ],
)
def test_length_penalty_by_hand(tokens: int, most: int, buffer: int, value: float) -> None:
    assert length_penalty(tokens, most, buffer) == value
