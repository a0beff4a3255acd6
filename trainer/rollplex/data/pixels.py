"""From pixels to patches, the way the model folder's own processor does it, with numpy alone.

Worker processes run this, so it imports neither torch nor transformers. A test holds it bit-equal to Hugging Face's
processors of Qwen2.5-VL and Qwen3-VL.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

Pixels = np.ndarray[Any, np.dtype[np.uint8]]  # [frames, height, width, 3] RGB, or one frame without the first axis
Patches = np.ndarray[Any, np.dtype[np.float32]]  # [t * h * w, patch_dim]

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
MAX_ASPECT_RATIO = 200  # Qwen's limit
# Processors whose sizes bound the pixels of all of a video's frames together; those of others bound each frame's.
_BOUND_WHOLE_VIDEOS = ("Qwen3VLVideoProcessor",)


class MediaError(Exception):
    """One medium that cannot be used; the row that holds it is skipped and counted under ``reason``.

    ``reason`` is one word of a fixed few: missing, unreadable, truncated, aspect_ratio, timeout, crashed.
    """

    def __init__(self, reason: str, path: str, detail: str = "") -> None:
        super().__init__(reason, path, detail)
        self.reason, self.path, self.detail = reason, path, detail

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" + (f" ({self.detail})" if self.detail else "")


@dataclass(frozen=True)
class PixelRules:
    """What the folder's processor does to pixels: sizes in pixels per frame, mean and std of values in 0..1.

    ``video_min`` is of a frame, or, with ``whole_videos``, of all frames together.
    """

    image_min: int = 56 * 56
    image_max: int = 28 * 28 * 1280
    video_min: int = 56 * 56
    whole_videos: bool = False
    patch: int = 14
    temporal_patch: int = 2
    merge: int = 2
    mean: tuple[float, float, float] = CLIP_MEAN
    std: tuple[float, float, float] = CLIP_STD
    rescale: float = 1 / 255

    @property
    def factor(self) -> int:
        """Both sides of a frame are multiples of this: one language token's square of patches."""
        return self.patch * self.merge

    def least(self, frames: int) -> float:
        """Pixels that a frame of a video of so many has at least."""
        return self.video_min / frames if self.whole_videos else self.video_min


def pixel_rules(folder: str | Path) -> PixelRules:
    """Read a model folder's processor configuration; raises ValueError naming the file that is missing or wrong."""
    folder = Path(folder)
    image, video = _processor_configs(folder)
    for name, config in (("image", image), ("video", video)):
        if not (config.get("do_rescale", True) and config.get("do_normalize", True)):
            raise ValueError(f"{folder}: the {name} processor does not rescale and normalise; that is not supported")
    image_size, video_size = _sizes(image), _sizes(video)
    return PixelRules(
        image_min=image_size[0],
        image_max=image_size[1],
        video_min=video_size[0],
        whole_videos=video.get("video_processor_type") in _BOUND_WHOLE_VIDEOS,
        patch=image.get("patch_size", 14),
        temporal_patch=image.get("temporal_patch_size", 2),
        merge=image.get("merge_size", 2),
        mean=tuple(image.get("image_mean", CLIP_MEAN)),
        std=tuple(image.get("image_std", CLIP_STD)),
        rescale=image.get("rescale_factor", 1 / 255),
    )


def _processor_configs(folder: Path) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The image's and the video's: one file with both (transformers 5) or a file each (4), the image's for both."""

    def read(name: str) -> dict[str, Any]:
        path = folder / name
        if not path.exists():
            return {}
        try:
            loaded: dict[str, Any] = json.loads(path.read_text())
        except json.JSONDecodeError as error:
            raise ValueError(f"{path} is not JSON: {error}") from None
        return loaded

    both = read("processor_config.json")
    image = both.get("image_processor") or read("preprocessor_config.json")
    if not image:
        raise ValueError(f"{folder} has no preprocessor_config.json; model.path must hold the model's processor")
    return image, both.get("video_processor") or read("video_preprocessor_config.json") or image


def _sizes(config: Mapping[str, Any]) -> tuple[int, int]:
    size = config.get("size") or {}
    least = config.get("min_pixels") or size.get("shortest_edge") or 56 * 56
    most = config.get("max_pixels") or size.get("longest_edge") or 28 * 28 * 1280
    return int(least), int(most)


def smart_resize(height: int, width: int, *, factor: int, min_pixels: float, max_pixels: int) -> tuple[int, int]:
    """Qwen's rule: the size nearest to (height, width) with both sides multiples of ``factor`` and an area in bounds.

    Tiny pictures are enlarged by the same rule. Raises ValueError above an aspect ratio of 200.
    """
    ratio = max(height, width) / min(height, width)
    if ratio > MAX_ASPECT_RATIO:
        raise ValueError(f"{width}x{height} has an aspect ratio of {ratio:.0f}; the limit is {MAX_ASPECT_RATIO}")
    rows, columns = round(height / factor), round(width / factor)
    area = rows * columns * factor**2
    if area > max_pixels:
        shrink = math.sqrt(height * width / max_pixels)
        rows = max(1, math.floor(height / shrink / factor))
        columns = max(1, math.floor(width / shrink / factor))
    elif area < min_pixels:
        grow = math.sqrt(min_pixels / (height * width))
        rows, columns = math.ceil(height * grow / factor), math.ceil(width * grow / factor)
    return rows * factor, columns * factor


def resize(image: Image.Image, height: int, width: int) -> Pixels:
    """An image as [height, width, 3] uint8 RGB."""
    image = image.convert("RGB")
    if image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.BICUBIC)
    return np.asarray(image)


def grid_of(frames: Pixels, rules: PixelRules) -> tuple[int, int, int]:
    """(t, h, w) in patches of [frames, height, width, 3]: an odd last frame counts as a whole temporal row."""
    count, height, width, _ = frames.shape
    return -(-count // rules.temporal_patch), height // rules.patch, width // rules.patch


def patchify(frames: Pixels, rules: PixelRules, out: Patches | None = None) -> Patches:
    """Normalised patches [t * h * w, patch_dim] of [frames, height, width, 3], in the processor's order.

    An odd last frame is repeated once to fill its temporal row; an image is one frame. ``out`` is written if given.
    """
    t, h, w = grid_of(frames, rules)
    patch, merge, temporal = rules.patch, rules.merge, rules.temporal_patch
    if missing := t * temporal - len(frames):
        frames = np.concatenate([frames, np.repeat(frames[-1:], missing, axis=0)])
    blocks = frames.reshape(t, temporal, h // merge, merge, patch, w // merge, merge, patch, 3)
    blocks = blocks.transpose(0, 2, 5, 3, 6, 8, 1, 4, 7)  # t, h/merge, w/merge, merge, merge, colour, temporal, y, x
    values = blocks.reshape(t * h * w, 3, temporal * patch**2)
    if out is None:
        out = np.empty((t * h * w, 3 * temporal * patch**2), dtype=np.float32)
    by_colour = out.reshape(values.shape)
    # a uint8 has 256 values: normalise those, in the processor's own float32 arithmetic, and look the rest up
    scale = np.float32(1.0 / rules.rescale)
    for colour in range(3):
        mean, std = np.float32(rules.mean[colour]) * scale, np.float32(rules.std[colour]) * scale
        table = (np.arange(256, dtype=np.float32) - mean) / std
        by_colour[:, colour] = table[values[:, colour]]
    return out
