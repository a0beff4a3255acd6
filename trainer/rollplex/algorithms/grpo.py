"""Group relative policy optimisation (DeepSeekMath, arXiv 2402.03300)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rollplex.algorithms.base import Advantage, Algorithm, Outcome, Settings
from rollplex.algorithms.ratio import clipped_gradient
from rollplex.api.algorithm import OPTIONS

EPSILON = 1e-6  # keeps a group of almost equal rewards from being blown up


def standardised(rewards: Sequence[float]) -> list[float]:
    """(r - mean) / (std + 1e-6); std is the sample's (n - 1), as TRL and verl take it. Equal rewards give zeros."""
    if min(rewards) == max(rewards):
        return [0.0] * len(rewards)  # their mean may be off by a rounding, which Adam would take for a gradient
    values = torch.tensor(rewards, dtype=torch.float64)
    centred = values - values.mean()
    return (centred / (values.std() + EPSILON)).tolist()


def group_advantages(rewards: Sequence[float]) -> list[float]:
    """A reward against its group: :func:`standardised` over the group (section 4.1.2).

    Raises:
        ValueError: a group of one, whose advantage would always be zero.
    """
    if len(rewards) < 2:
        raise ValueError(f"a group of {len(rewards)} has no advantage to learn from; algorithm.groupSize must be >= 2")
    return standardised(rewards)


def advantages(outcomes: Sequence[Outcome], settings: Settings) -> list[Advantage]:
    """:func:`group_advantages` of each group."""
    return [Advantage(tuple(group_advantages(outcome.rewards))) for outcome in outcomes]


# Equation 3: the clipped surrogate, a mean over each response's tokens, then over responses; the KL is equation 4's.
ALGORITHM = Algorithm("grpo", OPTIONS["grpo"], "group", advantages, clipped_gradient)
