"""GRPO's advantages and loss, against numbers worked out by hand."""

from __future__ import annotations

import random
from math import log, sqrt

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rollplex.algorithms.grpo import group_advantages, token_loss


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


# ratio, advantage -> loss, gradient to logp, whether the clip decided; low 0.2, high 0.3
CLIP = [
    (1.0, 2.0, -2.0, -2.0, 0.0),
    (1.0, -2.0, 2.0, 2.0, 0.0),
    (1.1, 2.0, -2.2, -2.2, 0.0),
    (1.5, 2.0, -2.6, 0.0, 1.0),  # already pushed up far enough
    (0.5, 2.0, -1.0, -1.0, 0.0),  # went the wrong way: full gradient
    (1.5, -1.0, 1.5, 1.5, 0.0),
    (0.9, -1.0, 0.9, 0.9, 0.0),
    (0.5, -1.0, 0.8, 0.0, 1.0),
    (1.5, 0.0, 0.0, 0.0, 0.0),
]


@pytest.mark.parametrize(("ratio", "advantage", "loss", "gradient", "clipped"), CLIP)
def test_the_clip_away_from_ratio_one(
    ratio: float, advantage: float, loss: float, gradient: float, clipped: float
) -> None:
    behaviour = torch.tensor([-1.5])
    logp = (behaviour + log(ratio)).requires_grad_()
    found = token_loss(logp, behaviour, torch.tensor([advantage]), clip_low=0.2, clip_high=0.3)
    found.loss.sum().backward()
    assert float(found.loss.detach()) == pytest.approx(loss, abs=1e-6)
    assert logp.grad is not None
    assert float(logp.grad) == pytest.approx(gradient, abs=1e-6)
    assert float(found.clipped) == clipped
    assert found.kl is None


def test_on_policy_the_gradient_is_the_advantage_and_the_clip_idle() -> None:
    logp = torch.tensor([-0.1, -2.0, -30.0], requires_grad=True)
    found = token_loss(logp, logp.detach(), torch.tensor([1.5, -0.5, 2.0]), clip_low=0.2, clip_high=0.2)
    found.loss.sum().backward()
    assert logp.grad is not None
    assert logp.grad.tolist() == [-1.5, 0.5, -2.0]
    assert found.clipped.tolist() == [0.0, 0.0, 0.0]


def test_the_kl_is_added_by_its_coefficient_and_reported_without() -> None:
    logp = torch.tensor([log(0.5)], requires_grad=True)
    found = token_loss(
        logp,
        logp.detach(),
        torch.tensor([2.0]),
        clip_low=0.2,
        clip_high=0.2,
        reference=torch.tensor([log(0.25)]),
        kl_coefficient=0.1,
        kl_estimator="k2",
    )
    found.loss.sum().backward()
    assert float(found.loss.detach()) == pytest.approx(-2.0 + 0.1 * log(2) ** 2 / 2)
    assert logp.grad is not None
    assert float(logp.grad) == pytest.approx(-2.0 + 0.1 * log(2))
    assert found.kl is not None
    assert float(found.kl) == pytest.approx(log(2) ** 2 / 2)
    assert not found.kl.requires_grad


def test_a_kl_without_reference_is_an_error() -> None:
    logp = torch.zeros(2)
    with pytest.raises(ValueError, match=r"algorithm\.kl\.coefficient is 0\.5, but no reference"):
        token_loss(logp, logp, logp, clip_low=0.2, clip_high=0.2, kl_coefficient=0.5)
