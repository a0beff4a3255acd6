"""Every algorithm's advantages by hand: equal and unequal rewards, lengths where they matter."""

from __future__ import annotations

from math import sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollplex.algorithms.base import Advantage, Outcome, Settings
from rollplex.algorithms.choose import ALGORITHMS
from rollplex.algorithms.dapo import overlong_penalty

LENGTHS = (1, 2, 3, 10)
any_reward = settings(max_examples=50, deadline=None)  # a shared machine may stop for a second
GROUP_RELATIVE = ("grpo", "gspo", "cispo", "dapo")


def found(name: str, *groups: tuple[float, ...], choice: Settings | None = None) -> list[Advantage]:
    outcomes = [Outcome(rewards, LENGTHS[: len(rewards)]) for rewards in groups]
    return ALGORITHMS[name].advantages(outcomes, choice or Settings())


def values(name: str, *groups: tuple[float, ...]) -> list[float]:
    return [value for advantage in found(name, *groups) for value in advantage.values]


CASES = [
    *((name, (1.0, 0.0), [1 / sqrt(2), -1 / sqrt(2)]) for name in GROUP_RELATIVE),
    *((name, (1.0, 0.0, 0.0, 0.0), [1.5, -0.5, -0.5, -0.5]) for name in GROUP_RELATIVE),
    ("dr_grpo", (1.0, 0.0), [0.5, -0.5]),
    ("dr_grpo", (1.0, 0.0, 0.0, 0.0), [0.75, -0.25, -0.25, -0.25]),
    ("dr_grpo", (10.0, 0.0), [5.0, -5.0]),
    ("rloo", (1.0, 0.0), [1.0, -1.0]),
    ("rloo", (1.0, 0.0, 0.0, 0.0), [1.0, -1 / 3, -1 / 3, -1 / 3]),
    ("rloo", (1.0, 2.0, 6.0), [1 - 4.0, 2 - 3.5, 6 - 1.5]),
    ("reinforce_plus_plus", (1.0, 0.0), [1 / sqrt(2), -1 / sqrt(2)]),
    ("opd", (1.0, 0.0), [0.0, 0.0]),
]


@pytest.mark.parametrize(("name", "rewards", "expected"), CASES)
def test_advantages_by_hand(name: str, rewards: tuple[float, ...], expected: list[float]) -> None:
    assert values(name, rewards) == pytest.approx(expected, rel=1e-5)
    # two groups come out as each alone, where the batch does not matter
    if ALGORITHMS[name].scope != "batch":
        assert values(name, rewards, (0.0, 5.0)) == values(name, rewards) + values(name, (0.0, 5.0))


def test_reinforce_plus_plus_measures_against_the_batch() -> None:
    """Mean 1/2, standard deviation sqrt(1/3): equal rewards of a group are no zero here."""
    assert values("reinforce_plus_plus", (1.0, 1.0), (0.0, 0.0)) == pytest.approx(
        [sqrt(3) / 2, sqrt(3) / 2, -sqrt(3) / 2, -sqrt(3) / 2], rel=1e-5
    )
    assert values("reinforce_plus_plus", (1.0, 1.0, 1.0), (0.0,)) == pytest.approx([0.5, 0.5, 0.5, -1.5], rel=1e-5)
    assert values("reinforce_plus_plus", (0.1, 0.1, 0.1), (0.1, 0.1, 0.1)) == [0.0] * 6


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if ALGORITHMS[name].scope == "group"])
@any_reward
@given(reward=st.floats(-1e6, 1e6), size=st.integers(2, 4))
def test_a_group_of_equal_rewards_has_exact_zeros(name: str, reward: float, size: int) -> None:
    """Exactly: only then its passes can be left out, and Adam does not learn from a rounding."""
    [advantage] = found(name, (reward,) * size)
    assert advantage.values == (0.0,) * size
    assert advantage.counts == (name != "dapo")


@any_reward
@given(st.sampled_from(["grpo", "dr_grpo", "rloo"]), st.lists(st.floats(-100, 100), min_size=2, max_size=4))
def test_advantages_of_a_group_add_up_to_zero(name: str, rewards: list[float]) -> None:
    assert sum(values(name, tuple(rewards))) == pytest.approx(0.0, abs=1e-6)


def test_only_dapo_filters() -> None:
    unequal = [name for name in ALGORITHMS if name != "opd"]
    assert all(advantage.counts for name in unequal for advantage in found(name, (1.0, 0.0)))
    equal = {name: found(name, (1.0, 1.0), (1.0, 0.0))[0].counts for name in ALGORITHMS}
    assert equal == {name: name != "dapo" for name in ALGORITHMS}


@pytest.mark.parametrize(
    ("length", "penalty"), [(0, 0.0), (6, 0.0), (7, -0.125), (8, -0.25), (9, -0.375), (10, -0.5), (11, -0.5)]
)
def test_the_overlong_penalty_grows_over_the_buffer(length: int, penalty: float) -> None:
    """maxTokens 10, buffer 4, whole penalty 1/2."""
    choice = Settings(max_tokens=10, overlong_buffer=4, overlong_penalty=0.5)
    assert overlong_penalty(length, choice) == pytest.approx(penalty)
    assert overlong_penalty(length, Settings(max_tokens=10, overlong_penalty=0.5)) == 0.0


def test_dapo_shapes_rewards_by_length_and_filters_by_the_verifier() -> None:
    choice = Settings(max_tokens=10, overlong_buffer=8, overlong_penalty=1.0)
    [advantage] = found("dapo", (1.0, 1.0, 1.0, 0.0), choice=choice)
    # lengths 1, 2, 3, 10 make the rewards [1, 1, 7/8, -1]
    shaped = [1.0, 1.0, 0.875, -1.0]
    mean = sum(shaped) / 4
    deviation = sqrt(sum((reward - mean) ** 2 for reward in shaped) / 3)
    assert advantage.values == pytest.approx([(reward - mean) / deviation for reward in shaped], rel=1e-5)
    # all right, one of them too long: the verifier has nothing to tell them apart
    assert found("dapo", (1.0,) * 4, choice=choice) == [Advantage((0.0,) * 4, counts=False)]
    # told apart by the verifier, and equal after the penalty: the group counts, with nothing to learn
    assert found("dapo", (0.0, 0.0, 0.125, 1.0), choice=choice) == [Advantage((0.0,) * 4)]
