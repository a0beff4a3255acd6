"""What the tests of regions share."""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from rollplex.memory.driver import PageDriver
from rollplex.memory.ledger import StateClass
from rollplex.memory.region import Alias, Export, PageManager, Region

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


def add_one_in_another_process(region: Region, driver: Callable[[], PageDriver], folder: Path) -> None:
    """Another process gets the region over a unix socket, adds one to all its bytes, and is killed with it mapped."""
    where = str(folder / "link")
    ours, theirs = multiprocessing.Pipe()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(where)
        server.listen()
        child = multiprocessing.get_context("spawn").Process(target=_add_one, args=(driver, theirs, where))
        child.start()
        link, _ = server.accept()
        exports = region.export()
        sizes = " ".join(str(export.size) for export in exports)
        socket.send_fds(link, [sizes.encode()], [export.descriptor for export in exports])
        for export in exports:
            os.close(export.descriptor)
        link.close()
    assert ours.recv() == 0  # the bytes are this process's, and count here
    child.kill()
    child.join()


def _add_one(driver: Callable[[], PageDriver], channel: Connection, where: str) -> None:
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(where)
        sizes, descriptors, _, _ = socket.recv_fds(link, 256, 8)
    manager = PageManager(driver())
    exports = [Export(fd, int(size)) for fd, size in zip(descriptors, sizes.split(), strict=True)]
    region = manager.adopt("weights", exports, StateClass.SNAPSHOT)
    for descriptor in descriptors:
        os.close(descriptor)
    region.tensor((region.size,), torch.uint8).add_(1)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    channel.send(manager.ledger.total)
    channel.recv()
