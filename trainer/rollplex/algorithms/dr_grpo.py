"""Dr. GRPO ("Understanding R1-Zero-Like Training: A Critical Perspective", arXiv 2503.20783)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from rollplex.algorithms.base import Advantage, Algorithm, Outcome, Settings
from rollplex.algorithms.ratio import clipped_gradient
from rollplex.api.algorithm import OPTIONS


def centred(rewards: Sequence[float]) -> list[float]:
    """r - mean over a group: no division by the standard deviation, which would favour prompts that are too easy or
    too hard (section 3.1). Equal rewards give zeros."""
    if min(rewards) == max(rewards):
        return [0.0] * len(rewards)  # exactly, whatever the rounding of the mean
    mean = fmean(rewards)
    return [reward - mean for reward in rewards]


def advantages(outcomes: Sequence[Outcome], settings: Settings) -> list[Advantage]:
    """:func:`centred` of each group."""
    return [Advantage(tuple(centred(outcome.rewards))) for outcome in outcomes]


# Section 3.2: GRPO's clipped surrogate without 1/|o|, which would favour long wrong answers; a sum over tokens divided
# by a constant, as in the paper's listing 1 ("constant": rollout.maxTokens), or by nothing, as its formula ("sum").
ALGORITHM = Algorithm("dr_grpo", OPTIONS["dr_grpo"], "group", advantages, clipped_gradient)
