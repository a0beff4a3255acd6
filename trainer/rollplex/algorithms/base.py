"""What an algorithm is: a scope, the options it takes, and two pure functions.

Shapes: N = responses, M = all their tokens, one response after the other (an empty response has none).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from rollplex.api.algorithm import Normalization, Options


@dataclass(frozen=True)
class Settings:
    """A job's choices, with the algorithm's own where the job is silent (:func:`rollplex.algorithms.choose.chosen`)."""

    normalization: Normalization = "sequence"
    clip_low: float = 0.2
    clip_high: float = 0.2
    cap: float = 2.0  # of the importance ratio; idle where the ratio is 1
    kl_coefficient: float = 0.0
    kl_estimator: str = "k3"
    max_tokens: int = 1  # rollout.maxTokens: the longest response
    overlong_buffer: int = 0
    overlong_penalty: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """A finished group: the reward and the tokens of each response. ``rewards`` is empty for the scope "none"."""

    rewards: tuple[float, ...]
    lengths: tuple[int, ...]


@dataclass(frozen=True)
class Advantage:
    """Of one group: a number for each response.

    ``counts`` False: the algorithm filters the group out of its batch; it has no loss, no KL, and no place in any
    denominator.
    """

    values: tuple[float, ...]
    counts: bool = True


@dataclass(frozen=True)
class Scored:
    """Whole responses as a pass over them sees them; tensors are [M] float32.

    ``logp`` carries the gradient; ``behaviour`` is of the policy that sampled (detached ``logp`` where the ratio is 1
    by definition); ``advantage`` is each token's; ``lengths`` [N] are at least 1.
    """

    logp: torch.Tensor
    behaviour: torch.Tensor
    advantage: torch.Tensor
    lengths: tuple[int, ...]
    reference: torch.Tensor | None = None


@dataclass(frozen=True)
class Surrogate:
    """The policy's part of the loss by token, each [M]; only ``loss`` carries a gradient."""

    loss: torch.Tensor
    ratio: torch.Tensor  # importance ratio as the algorithm takes it, before cap and clip
    clipped: torch.Tensor  # 1.0 where the clip decided


@dataclass(frozen=True)
class Algorithm:
    """One algorithm.

    ``scope`` is what an advantage waits for: the rewards of its "group", of the whole "batch", or "none" where the loss
    needs no reward. ``advantages`` gets the outcomes that this scope brings together (one or more whole groups, or the
    batch) and answers one for one; ``surrogate`` gets any number of whole responses. ``options`` says which options of
    a job it takes, and what it takes where the job is silent.
    """

    name: str
    options: Options
    scope: Literal["none", "group", "batch"]
    advantages: Callable[[Sequence[Outcome], Settings], list[Advantage]]
    surrogate: Callable[[Scored, Settings], Surrogate]
