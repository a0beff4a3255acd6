"""What a decoding worker runs: one medium in, its patches out. Imports neither torch nor transformers."""

from __future__ import annotations

import os

import numpy as np

from rollplex.data.cache import FrameCache
from rollplex.data.media import MediaFile
from rollplex.data.pixels import PixelRules
from rollplex.data.video import Frames, VideoBudget, read_media
from rollplex.processes import SharedBuffer, WithBuffer

# grid (t, h, w), seconds per temporal row, frames repeated to fill the last row, found in the cache
Decoded = tuple[tuple[int, int, int], float, int, bool]


def import_decoders() -> None:
    """Import what a call would otherwise import under its time limit; the decoders are, if this can be called."""
    import rollplex.data.parquet  # noqa: F401


def decode(file: MediaFile, budget: VideoBudget, rules: PixelRules, cache: FrameCache | None) -> WithBuffer:
    """Decode, sample, resize and cut into patches; raises MediaError.

    The value is :data:`Decoded`, the buffer the patches, [t * h * w, patch_dim] float32.
    """
    frames, cached = _frames(file, budget, rules, cache)
    t, h, w = grid = frames.grid(rules)
    dim = 3 * rules.temporal_patch * rules.patch**2
    buffer = SharedBuffer(t * h * w * dim * 4)
    frames.patches(rules, np.frombuffer(buffer.map, dtype=np.float32).reshape(t * h * w, dim))
    repeated = 0 if frames.kind == "image" else t * rules.temporal_patch - len(frames.pixels)
    return WithBuffer((grid, frames.seconds_per_grid, repeated, cached), buffer)


def _frames(file: MediaFile, budget: VideoBudget, rules: PixelRules, cache: FrameCache | None) -> tuple[Frames, bool]:
    """The frames, and whether the cache had them."""
    if cache is None:
        return read_media(file, budget, rules), False
    try:
        key = cache.key(file, budget, rules)
    except OSError:
        return read_media(file, budget, rules), False  # which says what is wrong with the file
    frames = cache.load(key)
    if frames is not None:
        return frames, True
    frames = read_media(file, budget, rules)
    cache.store(key, frames)
    return frames, False


def default_workers() -> int:
    """A few of the CPUs that this process may use: half of them, from 1 to 8."""
    return max(1, min(8, len(os.sched_getaffinity(0)) // 2))
