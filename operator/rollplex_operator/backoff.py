"""Waits that double."""

from __future__ import annotations


def growing(count: int, first: float, most: float) -> float:
    """Seconds to wait after the ``count``-th time in a row, from 1."""
    return min(first * 2.0 ** min(count - 1, 30), most)
