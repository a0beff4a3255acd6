"""What a decoding worker runs: one file in, its patches out. Imports neither torch nor transformers."""

from __future__ import annotations

import os
from typing import Literal

import numpy as np

from rollplex.data.pixels import PixelRules
from rollplex.data.video import VideoBudget, read_media
from rollplex.processes import SharedBuffer, WithBuffer

Timing = tuple[tuple[int, int, int], float]  # grid (t, h, w) and seconds per temporal row


def import_decoders() -> None:
    """Nothing: being able to call this means that the decoders are imported."""


def decode(kind: Literal["image", "video"], path: str, budget: VideoBudget, rules: PixelRules) -> WithBuffer:
    """Decode, sample, resize and cut into patches; raises MediaError.

    The value is (grid, seconds_per_grid), the buffer the patches, [t * h * w, patch_dim] float32.
    """
    frames = read_media(kind, path, budget, rules)
    t, h, w = grid = frames.grid(rules)
    dim = 3 * rules.temporal_patch * rules.patch**2
    buffer = SharedBuffer(t * h * w * dim * 4)
    frames.patches(rules, np.frombuffer(buffer.map, dtype=np.float32).reshape(t * h * w, dim))
    return WithBuffer((grid, frames.seconds_per_grid), buffer)


def default_workers() -> int:
    """A few of the CPUs that this process may use: half of them, from 1 to 8."""
    return max(1, min(8, len(os.sched_getaffinity(0)) // 2))
