from __future__ import annotations

import time
from typing import Any

import pytest

from rollplex.reward.choice import choice, letter
from rollplex.reward.text import AnswerError


@pytest.mark.parametrize(
    ("text", "picked"),
    [
        ("B", "B"),
        ("b", "B"),
        ("(B)", "B"),
        ("[b].", "B"),
        ("B.", "B"),
        ("**B**", "B"),
        ("$B$", "B"),
        ("Option B", "B"),
        ("B<|im_end|>", "B"),
        ("B. The red cube", "B"),
        ("(b) the red cube", "B"),
        ("B: the red cube", "B"),
        ("B - the red cube", "B"),
        ("B because it is red", "B"),
        ("answer: B", "B"),
        ("Answer: (B).", "B"),
        ("**Answer:** b", "B"),
        ("The answer is B because A is wrong.", "B"),
        ("the correct answer is **C**", "C"),
        ("The answer is A ball", "A"),
        ("The answer is option D.", "D"),
        ("First I said the answer is A. No: the answer is C.", "C"),
        ("It is not (A).\n<answer>B</answer>", "B"),
        ("<answer>B. the cube</answer> or C", "B"),
        ("<answer>A</answer><answer>C</answer>", "C"),
        (r"so \boxed{\text{x}} then \boxed{D}", "D"),
        ("The cube moves left, so it must be C.", "C"),
        ("I think it is (C)", "C"),
        ("The ball(s) leave, thus (D), yes (D)", "D"),
        ("I would choose option c", "C"),
        # nothing is picked
        ("", None),
        ("red", None),
        ("A red ball", None),
        ("I like it", None),
        ("I'm sure", None),
        ("e.g. the cube", None),
        ("It is (A) or (B)", None),
        ("option A, then option B", None),
        ("<answer>red</answer> B", None),
        (r"\boxed{B", None),
        ("answer is red", None),
    ],
)
def test_letter_that_a_text_picks(text: str, picked: str | None) -> None:
    assert letter(text) == picked


def test_letters_beyond_the_choices_are_words() -> None:
    assert letter("I. think", choices=4) is None
    assert letter("E", choices=5) == "E"
    assert letter("(F) or (B)", choices=4) == "B"


@pytest.mark.parametrize(
    ("response", "answer", "value"),
    [
        ("B", "B", 1.0),
        ("(b)", "B. red", 1.0),
        ("answer: C", "(B)", 0.0),
        ("C", ["B", "C"], 1.0),
        ("no idea", "B", 0.0),
    ],
)
def test_choice_compares_letters(response: str, answer: Any, value: float) -> None:
    assert choice(response, answer) == value


@pytest.mark.parametrize("answer", ["red", 1, None, [], ["B", "blue"], "E"])
def test_choice_refuses_an_answer_without_a_letter(answer: Any) -> None:
    if answer == []:
        assert choice("B", answer) == 0.0
        return
    with pytest.raises(AnswerError, match="has no letter from A to D"):
        choice("B", answer, choices=4)


@pytest.mark.parametrize("text", ["(" * 200_000, "A" + ")" * 200_000 + "x", "answer " * 50_000, "<answer>" * 30_000])
def test_letter_takes_no_long_time_for_a_degenerate_text(text: str) -> None:
    started = time.monotonic()
    letter(text)
    assert time.monotonic() - started < 2
