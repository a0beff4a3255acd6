"""Which row comes when: shuffled epochs, as a pure function of (seed, position)."""

from __future__ import annotations

import random
from functools import lru_cache


class Sampler:
    """Maps a position (0, 1, 2, ...) to a row's index: every row once an epoch, each epoch in another order.

    Args:
        length: rows of the dataset, at least 1.
        seed: of the order.
    """

    def __init__(self, length: int, seed: int) -> None:
        if length < 1:
            raise ValueError(f"length is {length}; a sampler needs at least one row")
        self.length = length
        self._order = lru_cache(maxsize=2)(lambda epoch: _order(length, seed, epoch))

    def row(self, position: int) -> int:
        """Index of the row at a position."""
        epoch, place = divmod(position, self.length)
        return self._order(epoch)[place]


def _order(length: int, seed: int, epoch: int) -> list[int]:
    order = list(range(length))
    random.Random(f"{seed}/{epoch}").shuffle(order)  # a text seed is hashed whole: no two epochs are alike by chance
    return order
