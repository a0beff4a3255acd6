"""The loss of response tokens: an algorithm's surrogate, and the KL to the reference."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rollplex.algorithms.base import Algorithm, Scored, Settings
from rollplex.algorithms.kl import ESTIMATORS


@dataclass(frozen=True)
class TokenLoss:
    """Per-token results, each [M] float32; ``loss`` carries the gradient.

    ``kl`` is the estimate that is reported (and, times its coefficient, in the loss); None without a reference.
    ``ratio`` is as the algorithm takes it (gspo: its response's), before cap and clip.
    """

    loss: torch.Tensor
    kl: torch.Tensor | None
    ratio: torch.Tensor
    clipped: torch.Tensor  # 1.0 where the clip decided


def token_loss(algorithm: Algorithm, scored: Scored, settings: Settings) -> TokenLoss:
    """The algorithm's surrogate + beta KL per token; what each token weighs is not yet in it.

    Raises:
        ValueError: the KL has a weight (or the algorithm a teacher), but ``scored`` has no reference.
    """
    surrogate = algorithm.surrogate(scored, settings)
    loss, kl = surrogate.loss, None
    if scored.reference is not None:
        kl = ESTIMATORS[settings.kl_estimator](scored.logp, scored.reference)
    if settings.kl_coefficient > 0:
        if kl is None:
            raise ValueError(
                f"algorithm.kl.coefficient is {settings.kl_coefficient}, but no reference log probabilities came"
            )
        loss = loss + settings.kl_coefficient * kl
    return TokenLoss(loss, None if kl is None else kl.detach(), surrogate.ratio, surrogate.clipped)
