"""Group relative policy optimisation (DeepSeekMath, arXiv 2402.03300)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from rollplex.algorithms.kl import ESTIMATORS

EPSILON = 1e-6  # keeps a group of almost equal rewards from being blown up


def group_advantages(rewards: Sequence[float]) -> list[float]:
    """(r - mean) / (std + 1e-6) over one group (section 4.1.2); std is the sample's (n - 1), as TRL and verl take it.

    A group of equal rewards gets zeros.
    """
    if len(rewards) < 2:
        raise ValueError(f"a group of {len(rewards)} has no advantage to learn from; algorithm.groupSize must be >= 2")
    if min(rewards) == max(rewards):
        return [0.0] * len(rewards)  # their mean may be off by a rounding, which Adam would take for a gradient
    values = torch.tensor(rewards, dtype=torch.float64)
    centred = values - values.mean()
    return (centred / (values.std() + EPSILON)).tolist()


@dataclass(frozen=True)
class TokenLoss:
    """Per-token results, each [M] float32; ``loss`` carries the gradient."""

    loss: torch.Tensor
    kl: torch.Tensor | None
    clipped: torch.Tensor  # 1.0 where the clip decided


def token_loss(
    logp: torch.Tensor,
    behaviour: torch.Tensor,
    advantage: torch.Tensor,
    *,
    clip_low: float,
    clip_high: float,
    reference: torch.Tensor | None = None,
    kl_coefficient: float = 0.0,
    kl_estimator: str = "k3",
) -> TokenLoss:
    """-min(rho A, clip(rho, 1 - low, 1 + high) A) + beta KL, per token (equation 3), with rho = exp(logp - behaviour).

    Args:
        logp: of the policy, with gradient. behaviour: of the policy that sampled (detached ``logp`` where there is one
            update per rollout; then rho is 1 and the clip idle). advantage: per token. All [M].
        reference: log probabilities of the reference [M]; needed where ``kl_coefficient`` > 0.
    """
    ratio = torch.exp(logp - behaviour)
    plain = ratio * advantage
    clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high) * advantage
    loss = -torch.minimum(plain, clipped)
    kl = None
    if kl_coefficient > 0:
        if reference is None:
            raise ValueError(f"algorithm.kl.coefficient is {kl_coefficient}, but no reference log probabilities came")
        kl = ESTIMATORS[kl_estimator](logp, reference)
        loss = loss + kl_coefficient * kl
    return TokenLoss(loss, None if kl is None else kl.detach(), (clipped < plain).float().detach())
