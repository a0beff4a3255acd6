"""Turning per-token losses into one number.

Gradients are linear in the denominators, so a pass may run before the whole batch is known: it sums tokens with
:func:`token_weight`, and the step multiplies the summed gradient by :func:`batch_scale` at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

from rollplex.api.algorithm import Normalization


def token_weight(normalization: Normalization, length: int) -> float:
    """Weight of each token of a response of ``length`` tokens: 1 / length for "sequence", else 1."""
    return 1.0 / length if normalization == "sequence" else 1.0


def batch_scale(normalization: Normalization, lengths: Sequence[int], max_tokens: int) -> float:
    """What the summed loss of a batch is multiplied by.

    token: 1 / all tokens: every token counts the same (DAPO, arXiv 2503.14476, equation 8).
    sequence: 1 / responses: every response counts the same (GRPO, arXiv 2402.03300, equation 3).
    sum: 1 / responses too, but tokens were not weighed: a response counts as the sum over its tokens.
    constant: 1 / (responses * max_tokens): as sum, in the size of a mean (arXiv 2503.20783, listing 1).

    Args:
        lengths: tokens of every response that counts; an empty one counts, with a loss of 0. Where the papers write a
            mean over prompts around "token", it is the batch's here, as in their authors' code.
        max_tokens: rollout.maxTokens.

    Returns:
        0.0 where there is no token at all.
    """
    tokens = sum(lengths)
    if tokens == 0:
        return 0.0
    return (
        1.0
        / {
            "token": tokens,
            "sequence": len(lengths),
            "sum": len(lengths),
            "constant": len(lengths) * max_tokens,
        }[normalization]
    )
