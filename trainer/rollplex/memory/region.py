"""Regions: address ranges of one owner whose pages come and go while the addresses stay.

Whoever has a tensor of a region may keep it, and a captured graph may hold its address: after the next ``map`` it is
valid again, with undefined content. Before that it must not be touched, which is why :meth:`Region.tensor` gives none.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from rollplex.memory.driver import Block, Marker, PageDriver, refuse_expandable_segments
from rollplex.memory.ledger import Holding, Ledger, StateClass
from rollplex.memory.pages import PagePool, Retired

_POISON = 0xFF  # NaN in every floating-point type, and no index


class RegionError(RuntimeError):
    """A region was used in a state that does not allow it."""


@dataclass(frozen=True, slots=True)
class Export:
    """One block of a region for another process; the descriptor is the receiver's to close."""

    descriptor: int
    size: int


class PageManager:
    """All regions of one device.

    Args:
        driver: where pages come from.
        limit: bytes of pages that there may be, None: as the driver can.
        debug: fill pages with NaN when they are unmapped, so that whatever nobody regenerates shows.

    Raises:
        ValueError: torch is told to move pages by itself.
    """

    def __init__(self, driver: PageDriver, limit: int | None = None, *, debug: bool = False) -> None:
        refuse_expandable_segments()
        self.driver, self.debug = driver, debug
        self.pool, self.ledger = PagePool(driver, limit), Ledger()
        self.lock = threading.RLock()
        self._retired = Retired()

    def region(self, name: str, size: int, state_class: StateClass, *, init_once: bool = False) -> Region:
        """A range of ``size`` bytes, without pages yet.

        Args:
            name: its owner, for the ledger and for errors.
            init_once: what is in it is written once and read ever after, as buffers of a captured graph are.

        Raises:
            RegionError: ``init_once`` in a class whose pages go.
        """
        if init_once and state_class is not StateClass.PERMANENT:
            raise RegionError(
                f"{name}: written once and read ever after, but its class is {state_class}, whose pages go; make it "
                f"{StateClass.PERMANENT}"
            )
        return Region(self, name, size, state_class)

    def adopt(self, name: str, exports: Sequence[Export], state_class: StateClass) -> Region:
        """The pages of another process's region, mapped here. They count in the other's ledger, not in this one."""
        region = Region(self, name, sum(export.size for export in exports), state_class)
        with self.lock:
            region.attach([self.driver.adopt(export.descriptor, export.size) for export in exports])
        return region

    def retire(self, marker: Marker, blocks: list[Block], mapped: list[tuple[int, int]]) -> None:
        """Unmap and use blocks again once the work before ``marker`` is done."""
        self._retired.add(marker, blocks, mapped)

    def collect(self, *, wait: bool = False) -> None:
        """Take back what no work reads any more; ``wait`` until that is everything."""
        with self.lock:
            for blocks, mapped in self._retired.done(wait=wait):
                for address, size in mapped:
                    self.driver.unmap(address, size)
                self.pool.give(blocks)

    def take(self, size: int) -> list[Block]:
        """Blocks for a region; work in flight is waited for only where nothing else makes room."""
        self.collect()
        try:
            return self.pool.take(size)
        except MemoryError:
            self.collect(wait=True)
            return self.pool.take(size)


class Region:
    """A range of addresses; made by :meth:`PageManager.region`. Sizes are rounded up to the driver's granule."""

    def __init__(self, manager: PageManager, name: str, size: int, state_class: StateClass) -> None:
        granule = manager.driver.granule
        self.name, self.state_class = name, state_class
        self.size = -(-size // granule) * granule
        self.address = manager.driver.reserve(self.size)
        self._manager = manager
        self._holding = Holding(state_class, name)
        self._blocks: list[Block] = []
        self._aliases: list[int] = []
        self._adopted = self._closed = False
        self._leaving: Marker | None = None

    @property
    def mapped(self) -> bool:
        """Whether there are pages behind the addresses."""
        return bool(self._blocks)

    def map(self) -> None:
        """Put pages behind the addresses, and behind every alias; nothing if they are there. Content is undefined."""
        manager = self._manager
        with manager.lock:
            self._check_open()
            if self._blocks:
                return
            if self._leaving is not None:  # its old pages are still at these addresses
                self._leaving.synchronize()
                manager.collect()
                self._leaving = None
            self._blocks = manager.take(self.size)
            for address in (self.address, *self._aliases):
                self._map_at(address)
            manager.ledger.add(self._holding, self.size)

    def attach(self, blocks: list[Block]) -> None:
        """Pages that are another's, for as long as this region is open."""
        self._blocks, self._adopted = blocks, True
        self._map_at(self.address)

    def unmap(self, after: Marker | None = None) -> None:
        """Give the pages back; nothing if there are none.

        Args:
            after: the last work that reads or writes them; None: it is done already. The pages are used again only
                then, and count as gone from now on.

        Raises:
            RegionError: its class is permanent.
        """
        if self.state_class is StateClass.PERMANENT:
            raise RegionError(f"{self.name}: its pages are permanent; close it instead")
        self._unmap(after)

    def tensor(self, shape: Sequence[int], dtype: torch.dtype, offset: int = 0) -> torch.Tensor:
        """A tensor of ``shape`` at ``offset`` bytes, without a copy.

        Raises:
            RegionError: there are no pages now, or it would reach beyond the region.
        """
        return self._view(self.address, shape, dtype, offset)

    def alias(self) -> Alias:
        """A second range with the same pages, now and after every later ``map``."""
        manager = self._manager
        with manager.lock:
            self._check_open()
            address = manager.driver.reserve(self.size)
            self._aliases.append(address)
            if self._blocks:
                self._map_at(address)
        return Alias(self, address)

    def export(self) -> list[Export]:
        """Its pages for another process, in order; valid until they are unmapped here. The caller closes them."""
        self._check_mapped()
        driver = self._manager.driver
        return [Export(driver.export(block), block.size) for block in self._blocks]

    def close(self) -> None:
        """Give pages and addresses back; tensors of it must not be used any more."""
        manager = self._manager
        with manager.lock:
            if self._closed:
                return
            self._unmap(None)
            manager.collect(wait=True)
            for address in (self.address, *self._aliases):
                manager.driver.release(address, self.size)
            self._closed = True

    def _unmap(self, after: Marker | None) -> None:
        manager = self._manager
        with manager.lock:
            if not self._blocks:
                return
            if manager.debug and not self._adopted:
                if after is not None:
                    after.synchronize()
                self.tensor((self.size,), torch.uint8).fill_(_POISON)
            blocks, self._blocks = self._blocks, []
            mapped = [(address, self.size) for address in (self.address, *self._aliases)]
            if self._adopted:
                for address, size in mapped:
                    manager.driver.unmap(address, size)
                for block in blocks:
                    manager.driver.destroy(block)
                return
            manager.ledger.add(self._holding, -self.size)
            if after is not None and not after.query():
                manager.retire(after, blocks, mapped)
                self._leaving = after
                return
            for address, size in mapped:
                manager.driver.unmap(address, size)
            manager.pool.give(blocks)

    def _map_at(self, address: int) -> None:
        for block in self._blocks:
            self._manager.driver.map(address, block)
            address += block.size

    def _view(self, base: int, shape: Sequence[int], dtype: torch.dtype, offset: int) -> torch.Tensor:
        self._check_mapped()
        size = math.prod(shape) * dtype.itemsize
        if offset < 0 or offset + size > self.size:
            raise RegionError(
                f"{self.name}: {size:,} bytes at {offset:,} reach beyond its {self.size:,}; make the region larger"
            )
        if offset % dtype.itemsize:
            raise RegionError(f"{self.name}: offset {offset} is no multiple of {dtype}'s {dtype.itemsize} bytes")
        return self._manager.driver.tensor(base + offset, size).view(dtype).view(*shape)

    def _check_mapped(self) -> None:
        self._check_open()
        if not self._blocks:
            raise RegionError(f"{self.name} ({self.state_class}) has no pages now: map it before it is used")

    def _check_open(self) -> None:
        if self._closed:
            raise RegionError(f"{self.name} is closed")


@dataclass(frozen=True, slots=True)
class Alias:
    """The same pages at another address."""

    region: Region
    address: int

    def tensor(self, shape: Sequence[int], dtype: torch.dtype, offset: int = 0) -> torch.Tensor:
        """As :meth:`Region.tensor`."""
        return self.region._view(self.address, shape, dtype, offset)
