"""Per-token estimators of KL(policy || reference) from the sampled token (J. Schulman, "Approximating KL", 2020)."""

from __future__ import annotations

from collections.abc import Callable

import torch

Estimator = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def k1(logp: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """log p - log q: unbiased, may be negative; its gradient has expectation zero."""
    return logp - reference


def k2(logp: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """(log p - log q)^2 / 2: low variance, its gradient is that of the KL on average."""
    return 0.5 * (logp - reference) ** 2


def k3(logp: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """q/p - 1 - log(q/p): unbiased and never negative; GRPO's choice (arXiv 2402.03300, equation 4)."""
    log_ratio = reference - logp
    return torch.expm1(log_ratio) - log_ratio


ESTIMATORS: dict[str, Estimator] = {"k1": k1, "k2": k2, "k3": k3}
