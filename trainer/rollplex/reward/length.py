"""The reward ``length``: a soft penalty for responses that come near, or pass, a number of tokens."""

from __future__ import annotations


def length_penalty(tokens: int, max_tokens: int, buffer_tokens: int) -> float:
    """0.0 up to ``max_tokens - buffer_tokens``, then linearly down to -1.0 at ``max_tokens``, and -1.0 beyond.

    DAPO's soft over-long punishment (arXiv 2503.14476, eq. 13); without a buffer a step at ``max_tokens``.
    """
    free = max_tokens - buffer_tokens
    if tokens <= free:
        return 0.0
    return -1.0 if tokens > max_tokens else (free - tokens) / buffer_tokens
