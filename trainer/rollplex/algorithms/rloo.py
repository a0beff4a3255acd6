"""REINFORCE leave-one-out ("Back to Basics", arXiv 2402.14740)."""

from __future__ import annotations

from collections.abc import Sequence

from rollplex.algorithms.base import Advantage, Algorithm, Outcome, Settings
from rollplex.algorithms.dr_grpo import centred
from rollplex.algorithms.ratio import policy_gradient
from rollplex.api.algorithm import OPTIONS


def leave_one_out(rewards: Sequence[float]) -> list[float]:
    """r minus the mean of the *other* rewards of its group ("REINFORCE Leave-One-Out (RLOO)" in the paper).

    Computed as n / (n - 1) (r - mean over all), which is the same and gives exact zeros where rewards are equal.
    """
    factor = len(rewards) / (len(rewards) - 1)
    return [factor * value for value in centred(rewards)]


def advantages(outcomes: Sequence[Outcome], settings: Settings) -> list[Advantage]:
    """:func:`leave_one_out` of each group."""
    return [Advantage(tuple(leave_one_out(outcome.rewards))) for outcome in outcomes]


# A response is one action: its log probability is the sum over its tokens. The paper's KL is part of the reward; here
# it is a term of the loss, as for the others.
ALGORITHM = Algorithm("rloo", OPTIONS["rloo"], "group", advantages, policy_gradient)
