"""Resident memory of this process and all that it has started, and how it grows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")


def resident_mb() -> float:
    """Megabytes of this process and its descendants."""
    parents: dict[int, int] = {}
    pages: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            pages[int(folder.name)] = int((folder / "statm").read_text().split()[1])
        except OSError:
            continue  # it ended meanwhile
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(pages.get(pid, 0) for pid in ours) * PAGE / 1e6


def growth(values: Sequence[float]) -> float:
    """Growth per item, between the lowest of the first third and of the last.

    How much is held in between varies (media in flight may be shared or not); a leak lifts the floor.
    """
    third = len(values) // 3
    return (min(values[-third:]) - min(values[:third])) / (len(values) - third)
