from __future__ import annotations

from typing import Any

import pytest

from rollplex.reward.exact import exact


@pytest.mark.parametrize(
    ("response", "answer", "value"),
    [
        ("red", "red", 1.0),
        (" Red.\n", "red", 1.0),
        ("red<|im_end|>", "Red", 1.0),
        ("red .<|im_end|>\n", "red.", 1.0),
        ("STRASSE", "straße", 1.0),
        ("3", 3, 1.0),
        ("two", ["2", "two"], 1.0),
        ("red blue", "red", 0.0),
        ("red..", "red", 0.0),
        ("", "red", 0.0),
        ("<|im_end|>", "red", 0.0),
        ("ed", "red", 0.0),
        ("a < b|c> d", "a d", 0.0),
    ],
)
def test_exact_compares_normalised_text(response: str, answer: Any, value: float) -> None:
    assert exact(response, answer) == value
