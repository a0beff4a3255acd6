"""Pages of host memory: each block is a memfd, so that two mappings of it are one memory, as on a GPU.

What holds on a GPU holds here: addresses are reserved without memory, an unmapped address faults, and a block is
shared with another process by its descriptor.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from dataclasses import dataclass

import torch

from rollplex.memory.driver import Block, DriverError

_GRANULE = 2 << 20  # what CUDA's is, so that layouts are the same
_PROT_NONE, _PROT_READ_WRITE = 0, mmap.PROT_READ | mmap.PROT_WRITE
_MAP_FIXED, _MAP_NORESERVE = 0x10, 0x4000
_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


@dataclass(eq=False, slots=True)
class HostBlock:
    """A memfd of ``size`` bytes."""

    descriptor: int
    size: int


class HostDriver:
    """The page driver of host memory. Not safe for threads by itself: the page manager has the lock."""

    granule = _GRANULE

    def __init__(self) -> None:
        self._blocks: set[HostBlock] = set()

    def reserve(self, size: int) -> int:
        # one granule more, since mmap aligns to 4 KiB only
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        raw = _mmap(0, size + _GRANULE, _PROT_NONE, flags, -1)
        address = -(-raw // _GRANULE) * _GRANULE
        for start, end in ((raw, address), (address + size, raw + size + _GRANULE)):
            if end > start:
                _munmap(start, end - start)
        return address

    def release(self, address: int, size: int) -> None:
        _munmap(address, size)

    def create(self, size: int) -> HostBlock:
        descriptor = os.memfd_create("rollplex-pages", os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, size)
        except OSError as error:
            os.close(descriptor)
            raise DriverError(f"memfd of {size} bytes: {error.strerror}") from None
        return self._added(HostBlock(descriptor, size))

    def destroy(self, block: Block) -> None:
        block = self._own(block)
        self._blocks.remove(block)
        os.close(block.descriptor)

    def map(self, address: int, block: Block) -> None:
        descriptor = self._own(block).descriptor
        _mmap(address, block.size, _PROT_READ_WRITE, mmap.MAP_SHARED | _MAP_FIXED, descriptor)

    def unmap(self, address: int, size: int) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE | _MAP_FIXED
        _mmap(address, size, _PROT_NONE, flags, -1)

    def export(self, block: Block) -> int:
        return os.dup(self._own(block).descriptor)

    def adopt(self, descriptor: int, size: int) -> HostBlock:
        try:
            has = os.fstat(descriptor).st_size
        except OSError as error:
            raise DriverError(f"descriptor {descriptor}: {error.strerror}") from None
        if has != size:
            raise DriverError(f"descriptor {descriptor} has {has} bytes of memory, not {size}")
        return self._added(HostBlock(os.dup(descriptor), size))

    def tensor(self, address: int, size: int) -> torch.Tensor:
        return torch.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype=torch.uint8)

    def physical_bytes(self) -> int:
        return sum(os.fstat(block.descriptor).st_blocks * 512 for block in self._blocks)

    def _added(self, block: HostBlock) -> HostBlock:
        self._blocks.add(block)
        return block

    def _own(self, block: Block) -> HostBlock:
        assert isinstance(block, HostBlock)
        assert block in self._blocks, "another driver's, or destroyed"
        return block


def _mmap(address: int, size: int, protection: int, flags: int, descriptor: int) -> int:
    mapped = _libc.mmap(address, size, protection, flags, descriptor, 0)
    if mapped == _FAILED:
        raise DriverError(f"mmap of {size} bytes: {os.strerror(ctypes.get_errno())}")
    return int(mapped)


def _munmap(address: int, size: int) -> None:
    if _libc.munmap(address, size) != 0:
        raise DriverError(f"munmap of {size} bytes: {os.strerror(ctypes.get_errno())}")
