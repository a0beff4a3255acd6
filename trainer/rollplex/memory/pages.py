"""Physical memory in chunks that are used again: creating and freeing it costs 10 to 100 times what mapping does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from rollplex.memory.driver import Block, Marker, PageDriver

# A mapping costs about the same whatever its size, so few large chunks; small ones, so that what is left fits anywhere.
CHUNKS = (1 << 30, 64 << 20, 2 << 20)


class PagesExhaustedError(MemoryError):
    """There is no room for a request below the limit; the message names both and who holds the rest."""


class PagePool:
    """Blocks of a few sizes, kept when given back.

    Args:
        driver: what makes them; its granule divides every chunk size.
        limit: bytes of physical memory that this pool may have, None: as much as the driver gives.
        chunks: sizes of blocks in bytes, largest first; each is a multiple of the next.
    """

    def __init__(self, driver: PageDriver, limit: int | None = None, chunks: Sequence[int] = CHUNKS) -> None:
        if any(larger % smaller for larger, smaller in zip(chunks, (*chunks[1:], driver.granule), strict=True)):
            raise ValueError(f"chunks {tuple(chunks)}: each must be a multiple of the next, and of {driver.granule}")
        self.driver, self.limit, self.chunks = driver, limit, tuple(chunks)
        self.created = 0  # bytes of blocks that exist, used or free
        self._free: defaultdict[int, list[Block]] = defaultdict(list)

    @property
    def free(self) -> int:
        """Bytes of blocks that nobody uses."""
        return sum(size * len(blocks) for size, blocks in self._free.items())

    def split(self, size: int) -> Iterator[int]:
        """The chunks that ``size`` bytes, a multiple of the smallest, are made of; largest first."""
        for chunk in self.chunks:
            count, size = divmod(size, chunk)
            yield from [chunk] * count
        assert not size

    def take(self, size: int) -> list[Block]:
        """Blocks of ``size`` bytes together, a multiple of the smallest chunk; their content is undefined.

        Raises:
            PagesExhaustedError: they do not fit under the limit. Nothing is taken then.
        """
        taken: list[Block] = []
        try:
            for chunk in self.split(size):
                taken += self._take_one(chunk, size)
        except BaseException:
            self.give(taken)
            raise
        return taken

    def give(self, blocks: Sequence[Block]) -> None:
        """Blocks that are mapped nowhere and that no work reads any more, for the next to take."""
        for block in blocks:
            self._free[block.size].append(block)

    def trim(self) -> None:
        """Free what nobody uses."""
        for blocks in self._free.values():
            while blocks:
                block = blocks.pop()
                self.driver.destroy(block)
                self.created -= block.size

    def _take_one(self, chunk: int, request: int) -> list[Block]:
        """A block of a size; or, where only smaller ones are free or fit, as many of those."""
        if self._free[chunk]:
            return [self._free[chunk].pop()]
        if self._room(chunk):
            return [self._create(chunk)]
        smaller = [size for size in self.chunks if size < chunk]
        if smaller and sum(size * len(self._free[size]) for size in smaller) >= chunk:
            return self._gather(chunk, smaller)
        # free blocks of other sizes count towards the limit too: those that nobody uses make room
        self._free_others(chunk)
        if self._room(chunk):
            return [self._create(chunk)]
        assert self.limit is not None
        raise PagesExhaustedError(
            f"no pages for {request:,} bytes: the limit is {self.limit:,}, in use are {self.created - self.free:,}"
        )

    def _gather(self, chunk: int, smaller: Sequence[int]) -> list[Block]:
        """Free blocks that make up one of a larger size; each size divides the larger ones, so that they fit."""
        parts: list[Block] = []
        left = chunk
        for size in smaller:
            while left >= size and self._free[size]:
                parts.append(self._free[size].pop())
                left -= size
        assert left == 0
        return parts

    def _create(self, size: int) -> Block:
        block = self.driver.create(size)
        self.created += size
        return block

    def _room(self, size: int) -> bool:
        return self.limit is None or self.created + size <= self.limit

    def _free_others(self, chunk: int) -> None:
        for size, blocks in self._free.items():
            while blocks and not self._room(chunk) and size != chunk:
                self.driver.destroy(blocks.pop())
                self.created -= size


class Retired:
    """Blocks that work in flight may still read, each with the marker after which nobody does."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Marker, list[Block], list[tuple[int, int]]]] = []

    def add(self, marker: Marker, blocks: list[Block], mapped: list[tuple[int, int]]) -> None:
        """``mapped``: (address, size) where they are still mapped."""
        self._waiting.append((marker, blocks, mapped))

    def done(self, *, wait: bool = False) -> Iterator[tuple[list[Block], list[tuple[int, int]]]]:
        """What nobody reads any more, oldest first; ``wait`` for all of it."""
        still = []
        for marker, blocks, mapped in self._waiting:
            if wait:
                marker.synchronize()
            if wait or marker.query():
                yield blocks, mapped
            else:
                still.append((marker, blocks, mapped))
        self._waiting = still
