"""The words that every room shares: media, prompts, responses.

Shapes: P = tokens of a prompt (placeholders expanded), n = vision tokens of one medium, R = tokens of a response.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import torch


@dataclass(frozen=True, eq=False)
class Media:
    """One decoded image or video, as the vision tower takes it.

    ``patches`` is [t * h * w, patch_dim] float32 (normalised pixels in the processor's patch order), ``grid`` is
    (t, h, w) in patches before the merge, ``seconds_per_grid`` the time that one temporal row lasts (0.0: image), and
    ``repeated`` how many frames were repeated to make the last temporal row whole.
    """

    kind: Literal["image", "video"]
    patches: torch.Tensor
    grid: tuple[int, int, int]
    seconds_per_grid: float = 0.0
    repeated: int = 0

    @cached_property
    def key(self) -> str:
        """Content hash over pixels, grid and timing: equal keys mean equal features under equal weights."""
        digest = hashlib.blake2b(f"{self.kind} {self.grid} {self.seconds_per_grid!r}".encode(), digest_size=16)
        digest.update(self.patches.contiguous().numpy().tobytes())
        return digest.hexdigest()

    def tokens(self, merge: int) -> int:
        """Language tokens that stand for this medium: t * h * w / merge^2."""
        t, h, w = self.grid
        return t * h * w // merge**2

    def times(self, temporal_patch: int) -> list[float]:
        """Seconds from the video's start to the middle of each temporal row of ``temporal_patch`` frames.

        As Qwen3-VL's processor has it: half-way between the row's first and last frame, repeated ones not counted.
        """
        fps = temporal_patch / self.seconds_per_grid
        last = self.grid[0] * temporal_patch - self.repeated - 1
        rows = range(0, self.grid[0] * temporal_patch, temporal_patch)
        return [(first / fps + min(first + temporal_patch - 1, last) / fps) / 2 for first in rows]


@dataclass(frozen=True, eq=False)
class Prompt:
    """A prompt ready for every engine: the ids are final, nobody encodes text again.

    ``token_ids`` holds each placeholder as often as it has features; ``media_starts[i]`` is where the runs of
    ``media[i]`` begin: one run, or as many as it has temporal rows where the model reads their times as text between
    them. Runs of a medium are equally long. ``positions`` is [3, P] int64 (time, height, width; see
    :mod:`rollplex.positions`). ``row`` is the dataset's row, handed to rewards.
    """

    id: str
    token_ids: tuple[int, ...]
    positions: torch.Tensor
    media: tuple[Media, ...] = ()
    media_starts: tuple[tuple[int, ...], ...] = ()
    answer: Any = None
    row: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def key(self) -> str:
        """What makes two prompts' prefixes the same computation, apart from the weights: ids and media content."""
        digest = hashlib.blake2b(repr(self.token_ids).encode(), digest_size=16)
        for starts, media in zip(self.media_starts, self.media, strict=True):
            digest.update(f"@{','.join(map(str, starts))}:{media.key}".encode())
        return digest.hexdigest()

    @property
    def next_position(self) -> int:
        """Position of the first response token, the same on all three axes: one past the largest so far."""
        return int(self.positions.max()) + 1


@dataclass(frozen=True)
class Response:
    """One sampled response.

    ``token_ids`` are the engine's own ids, the stop token included when one was sampled; ``logprobs[r]`` is
    log softmax(logits / T) of ``token_ids[r]`` as the engine saw it; ``stop`` is the token id or string that ended it.
    """

    prompt: int  # index in the batch
    sample: int  # index in the group
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: Literal["stop", "length"]
    stop: int | str | None = None
    text: str = ""
