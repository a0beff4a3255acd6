"""Importance ratios between the policy and the one that sampled, their cap and their clip."""

from __future__ import annotations

import torch

from rollplex.algorithms.base import Scored, Settings, Surrogate


def capped_ratio(log_ratio: torch.Tensor, cap: float) -> torch.Tensor:
    """min(exp(log_ratio), cap), with the gradient of truncated importance sampling: its own value times d log_ratio.

    So a token whose ratio passes the cap still learns, by a weight of ``cap`` (E. Ionides, "Truncated Importance
    Sampling", 2008; for rollout engines: F. Yao et al., "Your efficient RL framework secretly brings you
    off-policy RL training", 2025).
    """
    weight = log_ratio.detach().exp().clamp(max=cap)
    return weight * torch.exp(log_ratio - log_ratio.detach())  # the second factor is 1; it carries the gradient


def policy_gradient(scored: Scored, settings: Settings) -> Surrogate:
    """-rho A per token, without a clip."""
    log_ratio = scored.logp - scored.behaviour
    loss = -capped_ratio(log_ratio, settings.cap) * scored.advantage
    return Surrogate(loss, log_ratio.detach().exp(), torch.zeros_like(loss.detach()))


def clipped_gradient(scored: Scored, settings: Settings) -> Surrogate:
    """-min(rho A, clip(rho, 1 - low, 1 + high) A) per token (PPO, arXiv 1707.06347, "Clipped Surrogate Objective"),
    rho capped."""
    return clipped_by(scored.logp - scored.behaviour, scored.advantage, settings)


def clipped_by(log_ratio: torch.Tensor, advantage: torch.Tensor, settings: Settings) -> Surrogate:
    """The clipped surrogate of any log ratio [M]: per token, or one per response repeated over its tokens."""
    ratio = capped_ratio(log_ratio, settings.cap)
    plain = ratio * advantage
    bounded = ratio.clamp(1.0 - settings.clip_low, 1.0 + settings.clip_high) * advantage
    decided = (bounded < plain).float().detach()
    return Surrogate(-torch.minimum(plain, bounded), log_ratio.detach().exp(), decided)
