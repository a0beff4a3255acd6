"""REINFORCE++ (arXiv 2501.03262)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from rollplex.algorithms.base import Advantage, Algorithm, Outcome, Settings
from rollplex.algorithms.grpo import standardised
from rollplex.algorithms.ratio import clipped_gradient
from rollplex.api.algorithm import OPTIONS


def advantages(outcomes: Sequence[Outcome], settings: Settings) -> list[Advantage]:
    """A reward against the whole batch: :func:`standardised` over all its responses (the paper's
    global advantage normalisation).

    Every response counts once, the empty ones too. A group of equal rewards has an advantage all the same, unless the
    whole batch is equal.
    """
    every = iter(standardised([reward for outcome in outcomes for reward in outcome.rewards]))
    return [Advantage(tuple(islice(every, len(outcome.rewards)))) for outcome in outcomes]


# PPO's clipped surrogate. The paper's KL is part of the reward; here it is a term of the loss, as for the
# others (and as in its variant with a baseline).
ALGORITHM = Algorithm("reinforce_plus_plus", OPTIONS["reinforce_plus_plus"], "batch", advantages, clipped_gradient)
