"""Decoupled clip and dynamic sampling policy optimisation (arXiv 2503.14476)."""

from __future__ import annotations

from collections.abc import Sequence

from rollplex.algorithms.base import Advantage, Algorithm, Outcome, Settings
from rollplex.algorithms.grpo import group_advantages
from rollplex.algorithms.ratio import clipped_gradient
from rollplex.api.algorithm import OPTIONS


def overlong_penalty(length: int, settings: Settings) -> float:
    """Soft over-long punishment (equation 13), times ``overlong.penalty``; zero or negative.

    Nothing up to maxTokens - buffer, then linearly to the whole penalty at maxTokens.
    """
    if settings.overlong_buffer == 0:
        return 0.0
    over = length - (settings.max_tokens - settings.overlong_buffer)
    return -settings.overlong_penalty * min(1.0, max(0, over) / settings.overlong_buffer)


def advantages(outcomes: Sequence[Outcome], settings: Settings) -> list[Advantage]:
    """GRPO's advantages (equation 9) of rewards with :func:`overlong_penalty`.

    A group whose verifier gave every response the same is filtered out, whatever the penalties (the constraint of
    equation 8). The paper samples other prompts in its place; a step here keeps its prompts and has a smaller batch.
    """
    return [_advantage(outcome, settings) for outcome in outcomes]


def _advantage(outcome: Outcome, settings: Settings) -> Advantage:
    if min(outcome.rewards) == max(outcome.rewards):
        return Advantage((0.0,) * len(outcome.rewards), counts=False)
    shaped = [
        reward + overlong_penalty(length, settings)
        for reward, length in zip(outcome.rewards, outcome.lengths, strict=True)
    ]
    return Advantage(tuple(group_advantages(shaped)))


# Equation 8: clip-higher, and a mean over all tokens.
ALGORITHM = Algorithm("dapo", OPTIONS["dapo"], "group", advantages, clipped_gradient)
