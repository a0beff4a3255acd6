"""Which row comes when: shuffled epochs, as a pure function of (seed, position)."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Hashable, Sequence
from functools import lru_cache


class Sampler:
    """Maps a position (0, 1, 2, ...) to a row's index: every row once an epoch, each epoch in another order.

    Args:
        length: rows of the dataset, at least 1.
        seed: of the order.
        groups: what each row belongs to, None for a row by itself. Rows of one group come one after the other, within
            one batch where they fit.
        batch: rows of a batch; only ``groups`` needs it. Batches start at its multiples.
    """

    def __init__(self, length: int, seed: int, groups: Sequence[Hashable | None] | None = None, batch: int = 1) -> None:
        if length < 1:
            raise ValueError(f"length is {length}; a sampler needs at least one row")
        self.length = length

        def order(epoch: int) -> list[int]:
            # a text seed is hashed whole: no two epochs are alike by chance
            shuffled = random.Random(f"{seed}/{epoch}")
            if groups is None:
                return _order(length, shuffled)
            return _packed(groups, batch, first=-(length * epoch) % batch or batch, shuffled=shuffled)

        self._order = lru_cache(maxsize=2)(order)

    def row(self, position: int) -> int:
        """Index of the row at a position."""
        epoch, place = divmod(position, self.length)
        return self._order(epoch)[place]


def _order(length: int, shuffled: random.Random) -> list[int]:
    order = list(range(length))
    shuffled.shuffle(order)
    return order


def _packed(groups: Sequence[Hashable | None], batch: int, first: int, shuffled: random.Random) -> list[int]:
    """Whole groups, in random order, into batches of which the first has only ``first`` places left.

    A batch takes the next group that still fits. Where none does, the next one of all is cut: batches are always full.
    """
    members: dict[Hashable, list[int]] = {}
    for row in _order(len(groups), shuffled):
        # a row by itself is a group of one; its number cannot meet a group's name
        members.setdefault(("row", row) if groups[row] is None else ("group", groups[row]), []).append(row)
    # by size, each list in the random order in which a group's first row came up; larger ones fill batches of their own
    waiting: dict[int, deque[tuple[int, list[int]]]] = {}
    for rank, rows in enumerate(members.values()):
        for start in range(0, len(rows), batch):
            part = rows[start : start + batch]
            waiting.setdefault(len(part), deque()).append((rank, part))
    order: list[int] = []
    room = first
    while waiting:
        fitting = [size for size in waiting if size <= room]
        size = min(fitting or waiting, key=lambda size: waiting[size][0][0])
        _, rows = waiting[size].popleft()
        if not waiting[size]:
            del waiting[size]
        order += rows[:room]
        rest = rows[room:]
        if rest:  # goes on at once in the next batch: its rank comes before all that wait
            waiting.setdefault(len(rest), deque()).appendleft((-1, rest))
        room = room - min(room, size) or batch
    return order
