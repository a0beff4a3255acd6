"""What a page driver does: addresses and physical memory as two things, joined and parted at will.

A driver knows nothing of who needs what; :mod:`rollplex.memory.pages` does. All sizes are bytes and multiples of the
driver's ``granule``; all addresses are multiples of it.
"""

from __future__ import annotations

import os
from typing import Protocol

import torch

EXPANDABLE = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


class DriverError(RuntimeError):
    """The operating system or the GPU driver refused a call; the message holds the call, its size and the reason."""


class Block(Protocol):
    """Physical memory that may be mapped at any number of addresses."""

    @property
    def size(self) -> int:
        """Bytes."""


class Marker(Protocol):
    """A point in the work of a device, such as a CUDA event."""

    def query(self) -> bool:
        """Whether the work before it is done."""

    def synchronize(self) -> None:
        """Wait for it."""


class PageDriver(Protocol):
    """The calls of one kind of memory. Errors are DriverError."""

    granule: int

    def reserve(self, size: int) -> int:
        """An address range without memory; touching it is a fault."""

    def release(self, address: int, size: int) -> None:
        """Give a range back; nothing is mapped in it."""

    def create(self, size: int) -> Block:
        """Physical memory, mapped nowhere; its content is undefined."""

    def destroy(self, block: Block) -> None:
        """Free physical memory that is mapped nowhere."""

    def map(self, address: int, block: Block) -> None:
        """Make a block readable and writable at an address of a reserved range."""

    def unmap(self, address: int, size: int) -> None:
        """Part addresses from their memory; the range stays reserved. All work on it must be done."""

    def export(self, block: Block) -> int:
        """A file descriptor, the caller's to close, by which another process can adopt the block."""

    def adopt(self, descriptor: int, size: int) -> Block:
        """The block of another process's descriptor; the descriptor stays the caller's."""

    def tensor(self, address: int, size: int) -> torch.Tensor:
        """A mapped range as [size] uint8, without a copy; it must not be used once the range is unmapped."""

    def physical_bytes(self) -> int:
        """Bytes of physical memory that this driver's blocks take, by the word of whoever provides them."""


def refuse_expandable_segments() -> None:
    """Raise ValueError where torch's allocator is told to move its own pages: its addresses would not be ours."""
    for name in EXPANDABLE:
        for setting in os.environ.get(name, "").split(","):
            key, _, value = setting.partition(":")
            if key.strip() == "expandable_segments" and value.strip().lower() == "true":
                raise ValueError(
                    f"{name} has expandable_segments:True, with which torch maps pages by itself beside the page "
                    "manager; take it out"
                )
