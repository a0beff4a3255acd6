"""The one policy, softmax(logits / T), as log probabilities and entropy of sampled tokens."""

from __future__ import annotations

import torch


def token_logprobs(
    logits: torch.Tensor, targets: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log probability and entropy, both [M] float32, of ``targets`` [M] under ``logits`` [M, V] at a temperature.

    The entropy carries no gradient and stays finite where logits are -inf (0 * log 0 = 0).
    """
    logs = torch.log_softmax(logits.float() / temperature, dim=-1)
    chosen = logs.gather(-1, targets[:, None]).squeeze(-1)
    with torch.no_grad():
        entropy = torch.special.entr(logs.exp()).sum(-1)
    return chosen, entropy
