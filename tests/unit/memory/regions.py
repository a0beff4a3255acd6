"""What the tests of regions share."""

from __future__ import annotations

import torch

from rollplex.memory.region import Alias, Region

MIB = 1 << 20


class Flag:
    """Work in flight that ends when the test says so."""

    def __init__(self) -> None:
        self.done = self.waited = False

    def query(self) -> bool:
        return self.done

    def synchronize(self) -> None:
        self.done = self.waited = True


def fill(region: Region | Alias, value: int) -> None:
    """Write one byte all over it."""
    size = region.size if isinstance(region, Region) else region.region.size
    region.tensor((size,), torch.uint8).fill_(value)
