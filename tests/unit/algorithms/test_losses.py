"""Every algorithm's loss: by hand for small cases, and its gradient against the paper's formula written out."""

from __future__ import annotations

import random
from dataclasses import replace
from math import sqrt

import pytest
import torch

from rollplex.algorithms.base import Settings
from rollplex.algorithms.choose import ALGORITHMS
from rollplex.api.algorithm import OPTIONS
from tests.unit.algorithms.batches import loss_of
from tests.unit.algorithms.formulas import FORMULAS, Batch, Numbers, Sample

MAX_TOKENS = 10


def flat(lengths: list[list[int]], rewards: list[list[float]]) -> Batch:
    """Responses whose every token has log probability -1 by policy and sampler, and -0.5 by the reference."""

    def sample(length: int, reward: float) -> Sample:
        one = torch.full((length,), -1.0, dtype=torch.float64)
        return Sample(one.clone().requires_grad_(), one, one / 2, reward)

    return [
        [sample(length, reward) for length, reward in zip(row, values, strict=True)]
        for row, values in zip(lengths, rewards, strict=True)
    ]


LONG, EMPTY = [[1, 2, 3, 10]], [[0, 2, 3, 10]]
ONE_RIGHT, ALL_RIGHT = [[1.0, 0.0, 0.0, 0.0]], [[1.0] * 4]  # group-relative: 3/2 and three times -1/2
MIXED, MIXED_REWARDS = [[1, 2, 3, 10], [3, 3, 1, 1]], [[1.0, 0.0, 0.0, 0.0], [1.0] * 4]

BY_HAND = [
    # means of tokens add up to the advantages, whose sum is zero; an empty response leaves its own out
    ("grpo", {}, LONG, ONE_RIGHT, 0.0),
    ("grpo", {}, EMPTY, ONE_RIGHT, 1.5 / 4),
    ("grpo", {}, LONG, ALL_RIGHT, 0.0),
    ("grpo", {}, [[0, 2, 3, 10], [3, 3, 1, 1]], MIXED_REWARDS, 1.5 / 8),  # equal rewards stay in the denominator
    ("grpo", {"normalization": "token"}, LONG, ONE_RIGHT, (0.5 * 15 - 1.5) / 16),
    ("grpo", {"normalization": "token"}, MIXED, MIXED_REWARDS, (0.5 * 15 - 1.5) / 24),
    # r - mean is 3/4 and three times -1/4
    ("dr_grpo", {}, LONG, ONE_RIGHT, (0.25 * 15 - 0.75) / (4 * MAX_TOKENS)),
    ("dr_grpo", {"normalization": "sum"}, LONG, ONE_RIGHT, (0.25 * 15 - 0.75) / 4),
    ("dr_grpo", {}, EMPTY, ONE_RIGHT, 0.25 * 15 / (4 * MAX_TOKENS)),
    ("gspo", {}, LONG, ONE_RIGHT, 0.0),
    ("gspo", {}, EMPTY, ONE_RIGHT, 1.5 / 4),
    ("dapo", {}, LONG, ONE_RIGHT, (0.5 * 15 - 1.5) / 16),
    ("dapo", {}, MIXED, MIXED_REWARDS, (0.5 * 15 - 1.5) / 16),  # equal rewards leave the denominator
    ("dapo", {}, LONG, ALL_RIGHT, 0.0),
    # the last loses a whole reward: [1, 0, 0, -1] has standard deviation sqrt(2 / 3)
    ("dapo", {"overlong_buffer": 5, "overlong_penalty": 1.0}, LONG, ONE_RIGHT, (10 - 1) * sqrt(3 / 2) / 16),
    ("dapo", {"overlong_buffer": 5, "overlong_penalty": 1.0}, LONG, ALL_RIGHT, 0.0),
    # -A log pi with log pi = -1
    ("cispo", {}, LONG, ONE_RIGHT, (1.5 - 0.5 * 15) / 16),
    ("cispo", {}, MIXED, MIXED_REWARDS, (1.5 - 0.5 * 15) / 24),
    # against the mean of the others: 1 and three times -1/3; a response is the sum of its tokens
    ("rloo", {}, LONG, ONE_RIGHT, (15 / 3 - 1) / 4),
    ("rloo", {}, EMPTY, ONE_RIGHT, 15 / 3 / 4),
    ("rloo", {}, LONG, ALL_RIGHT, 0.0),
    # one group right, one wrong: sqrt(3) / 2 either way, over the batch
    ("reinforce_plus_plus", {}, [[1, 2], [3, 10]], [[1.0, 1.0], [0.0, 0.0]], 0.0),
    ("reinforce_plus_plus", {}, [[0, 2], [3, 10]], [[1.0, 1.0], [0.0, 0.0]], sqrt(3) / 2 / 4),
    ("reinforce_plus_plus", {"normalization": "token"}, [[1, 2], [3, 10]], [[1.0, 1.0], [0.0, 0.0]],
     sqrt(3) / 2 * (13 - 3) / 16),
    ("reinforce_plus_plus", {}, LONG, ALL_RIGHT, 0.0),
    # log student - log teacher is -1/2 everywhere, whatever the rewards
    ("opd", {}, LONG, ONE_RIGHT, -0.5),
    ("opd", {}, EMPTY, ALL_RIGHT, -0.5),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options", "lengths", "rewards", "expected"), BY_HAND)
def test_loss_by_hand(
    name: str, options: dict[str, object], lengths: list[list[int]], rewards: list[list[float]], expected: float
) -> None:
    given = Settings(normalization=OPTIONS[name].normalization, max_tokens=MAX_TOKENS)
    settings = replace(given, **options)  # type: ignore[arg-type]
    assert loss_of(name, flat(lengths, rewards), settings).item() == pytest.approx(expected, abs=2e-6)


def test_the_kl_is_weighed_as_the_tokens_are() -> None:
    """k1 is -1/2 at every token."""
    batch = flat(LONG, ALL_RIGHT)
    for normalization, expected in (("token", -0.5), ("sequence", -0.5), ("sum", -0.5 * 16 / 4)):
        settings = Settings(normalization, kl_coefficient=0.1, kl_estimator="k1")  # type: ignore[arg-type]
        assert loss_of("grpo", batch, settings).item() == pytest.approx(0.1 * expected)


def draw(seed: int, by_rollout: bool, groups: int) -> Batch:
    """Random log probabilities and rewards; a group of equal ones, empty responses, ratios from 0.2 to 5."""
    dice = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)

    def normal(length: int, scale: float) -> torch.Tensor:
        return torch.randn(length, generator=generator, dtype=torch.float64) * scale

    def sample(reward: float) -> Sample:
        length = dice.choice([0, 1, 2, 3, 10])
        logp = (normal(length, 1.0) - 2).requires_grad_()
        noise = normal(length, 0.5) + normal(1, 0.2) if by_rollout else torch.zeros(length, dtype=torch.float64)
        return Sample(logp, logp.detach() - noise, logp.detach() + normal(length, 0.5), reward)

    rows = [[dice.choice([0.0, 0.3, 1.0]) for _ in range(4)] for _ in range(groups - 1)]
    batch = [[sample(reward) for reward in row] for row in [[1.0, 0.0, 0.25, 1.0], *rows]]
    return [*batch, [sample(0.5) for _ in range(4)]] if groups > 1 else batch


@pytest.mark.parametrize("groups", [1, 3], ids=["one group", "batch"])
@pytest.mark.parametrize("ratio", ["one", "rollout"])
@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_gradient_is_that_of_the_papers_formula(name: str, beta: float, ratio: str, groups: int) -> None:
    own = OPTIONS[name]
    low, high = own.clip or (0.2, 0.2)
    kl = 0.0 if own.kl is None else beta
    buffer = 6 if own.overlong else 0
    settings = Settings(own.normalization, low, high, 2.0, kl, "k3", 12, buffer, 0.7)
    numbers = Numbers(low, high, 2.0, kl, 12, buffer, 0.7)
    decided = 0.0
    for seed in range(5):
        batch = draw(seed, ratio == "rollout", groups)
        ours, paper = loss_of(name, batch, settings), FORMULAS[name](batch, numbers)
        assert ours.item() == pytest.approx(paper.item(), rel=1e-9, abs=1e-9)
        leaves = [sample.logp for group in batch for sample in group]
        pairs = zip(
            torch.autograd.grad(ours, leaves, allow_unused=True),
            torch.autograd.grad(paper, leaves, allow_unused=True),
            strict=True,
        )
        for found, exact in pairs:
            if exact is None or found is None:
                assert not any(side.any() for side in (found, exact) if side is not None)
                continue
            decided += float(exact.abs().sum())
            assert torch.allclose(found, exact, rtol=1e-9, atol=1e-12)
    assert decided > 0, "nothing was compared"


@pytest.mark.parametrize("name", ALGORITHMS)
def test_ratio_one_is_a_policy_gradient_whatever_the_clip(name: str) -> None:
    """With the policy itself as behaviour neither clip nor cap nor a sequence's ratio does anything."""
    batch = draw(3, by_rollout=False, groups=3)
    leaves = [sample.logp for group in batch for sample in group if sample.logp.numel()]
    settings = Settings("sequence", 0.2, 0.2, max_tokens=12)
    wide = replace(settings, clip_low=1.0, clip_high=100.0, cap=1e6)
    narrow = replace(settings, clip_low=1e-6, clip_high=1e-6, cap=1.0)
    first, second = (
        torch.autograd.grad(loss_of(name, batch, choice), leaves, allow_unused=True) for choice in (wide, narrow)
    )
    for one, other in zip(first, second, strict=True):
        assert (one is None) == (other is None)
        assert one is None or other is None or torch.allclose(one, other, rtol=1e-12)
