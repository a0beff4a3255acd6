"""GRPO's advantages, against numbers worked out by hand."""

from __future__ import annotations

import random
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollplex.algorithms.grpo import group_advantages


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([1.0, 0.0], [1 / sqrt(2), -1 / sqrt(2)]),
        ([10.0, 0.0], [1 / sqrt(2), -1 / sqrt(2)]),
        ([1.0, 0.0, 0.0, 1.0], [sqrt(3) / 2, -sqrt(3) / 2, -sqrt(3) / 2, sqrt(3) / 2]),
        # one bad answer among good ones: the whole group is kept, and the good ones are told so
        ([0.0] + [0.95] * 7, [-7 / sqrt(8)] + [1 / sqrt(8)] * 7),
        ([1.0, 2.0, 3.0], [-1.0, 0.0, 1.0]),
        ([-2.0, -2.0, 4.0], [-1 / sqrt(3), -1 / sqrt(3), 2 / sqrt(3)]),
    ],
)
def test_advantages_of_a_group(rewards: list[float], expected: list[float]) -> None:
    assert group_advantages(rewards) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("rewards", [[0.0] * 4, [1.0] * 4, [0.1] * 3, [0.7] * 7, [1 / 3] * 6, [-1e6 / 3] * 5])
def test_equal_rewards_teach_nothing(rewards: list[float]) -> None:
    """Exactly nothing: Adam would blow a rounding error of the mean up."""
    assert group_advantages(rewards) == [0.0] * len(rewards)


def test_almost_equal_rewards_are_not_blown_up() -> None:
    found = group_advantages([0.5, 0.5 + 1e-9])
    assert max(map(abs, found)) < 1e-3
    assert found[0] < 0 < found[1]


@pytest.mark.parametrize("rewards", [[], [1.0]])
def test_a_group_of_one_is_refused(rewards: list[float]) -> None:
    with pytest.raises(ValueError, match=rf"group of {len(rewards)} .*algorithm\.groupSize must be >= 2"):
        group_advantages(rewards)


@given(st.lists(st.floats(-100, 100).map(lambda value: round(value, 3)), min_size=2, max_size=12), st.randoms())
def test_advantages_are_centred_ordered_and_do_not_depend_on_the_order(
    rewards: list[float], order: random.Random
) -> None:
    found = group_advantages(rewards)
    assert sum(found) == pytest.approx(0.0, abs=1e-6)
    for reward, advantage in zip(rewards, found, strict=True):
        for other, its in zip(rewards, found, strict=True):
            assert (reward < other) <= (advantage < its)
    places = list(range(len(rewards)))
    order.shuffle(places)
    assert group_advantages([rewards[i] for i in places]) == pytest.approx([found[i] for i in places], abs=1e-9)
