"""Turning per-token losses into one number.

Gradients are linear in the denominators, so a pass may run before the whole batch is known: it sums tokens with
:func:`sequence_weight`, and the step multiplies the summed gradient by :func:`batch_scale` at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

Normalization = Literal["token", "sequence"]


def sequence_weight(normalization: Normalization, length: int) -> float:
    """Weight of each token of a response of ``length`` tokens: 1, or 1 / length."""
    return 1.0 if normalization == "token" else 1.0 / length


def batch_scale(normalization: Normalization, lengths: Sequence[int]) -> float:
    """What the summed loss of a batch is multiplied by: 1 / all tokens, or 1 / all responses.

    token: every token of the batch counts the same (DAPO, arXiv 2503.14476, equation 8). sequence: every response
    counts the same (GRPO, arXiv 2402.03300, equation 3); an empty one counts, with a loss of 0.
    Returns 0.0 where there is no token at all.
    """
    tokens = sum(lengths)
    if tokens == 0:
        return 0.0
    return 1.0 / (tokens if normalization == "token" else len(lengths))
