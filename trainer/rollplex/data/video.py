"""Decoding videos with PyAV and images with Pillow, within a job's budgets.

Worker processes run this, so it imports neither torch nor transformers. Whatever is wrong with a file comes out as
:class:`~rollplex.data.pixels.MediaError`; a decoder that blocks is the loader's to kill.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import av
import numpy as np
import PIL
from PIL import Image, ImageOps

from rollplex.data.media import MediaFile
from rollplex.data.pixels import MediaError, Patches, PixelRules, Pixels, grid_of, patchify, resize, smart_resize

DECODERS = f"av {av.__version__}, pillow {PIL.__version__}"  # another version may give other pixels


@dataclass(frozen=True)
class VideoBudget:
    """How much of a video is looked at; fields of the job's ``data.video``. The pixel limit holds for images too."""

    fps: float = 2.0
    max_frames: int = 32
    max_pixels_per_frame: int = 200_704


@dataclass(frozen=True)
class Frames:
    """A medium at its final size: [frames, height, width, 3] uint8; ``seconds_per_grid`` is 0.0 for an image."""

    kind: Literal["image", "video"]
    pixels: Pixels
    seconds_per_grid: float

    def patches(self, rules: PixelRules, out: Patches | None = None) -> Patches:
        return patchify(self.pixels, rules, out)

    def grid(self, rules: PixelRules) -> tuple[int, int, int]:
        return grid_of(self.pixels, rules)


def sample_frames(total: int, native_fps: float, budget: VideoBudget) -> tuple[list[int], float]:
    """Which of ``total`` frames to look at, and the frames per second that this makes.

    As many as ``budget.fps`` asks for over the video's duration, at least one, at most ``budget.max_frames`` and
    ``total``, evenly spread from the first frame on. The rate is that of the frames taken, not the one asked for:
    where a limit binds they lie further apart, and the positions in time must say so.
    """
    count = max(1, min(int(total / native_fps * budget.fps + 1e-6), budget.max_frames, total))
    return [index * total // count for index in range(count)], count / total * native_fps


def read_media(file: MediaFile, budget: VideoBudget, rules: PixelRules) -> Frames:
    """Decode, sample and resize one medium; raises MediaError."""
    name = file.name
    if not Path(file.path).exists():
        raise MediaError("missing", name)
    read = _read_image if file.kind == "image" else _read_video
    try:
        return read(file.source(), name, budget, rules)
    except MediaError:
        raise
    except Exception as error:  # noqa: BLE001 (decoders raise whatever they like: struct.error, SyntaxError, ...)
        raise MediaError("unreadable", name, f"{type(error).__name__}: {error}") from None


def _target(name: str, height: int, width: int, rules: PixelRules, least: float, most: int) -> tuple[int, int]:
    try:
        return smart_resize(height, width, factor=rules.factor, min_pixels=min(least, most), max_pixels=most)
    except ValueError as error:
        raise MediaError("aspect_ratio", name, str(error)) from None


def _read_image(source: str | BytesIO, name: str, budget: VideoBudget, rules: PixelRules) -> Frames:
    most = min(rules.image_max, budget.max_pixels_per_frame)
    with Image.open(source) as file:
        width, height = file.size
        _target(name, height, width, rules, rules.image_min, most)  # refuse a bad shape before decoding it
        image = ImageOps.exif_transpose(file)
        height, width = _target(name, image.height, image.width, rules, rules.image_min, most)
        return Frames("image", resize(image, height, width)[None], 0.0)


def _read_video(source: str | BytesIO, name: str, budget: VideoBudget, rules: PixelRules) -> Frames:
    with av.open(source) as container:
        if not container.streams.video:
            raise MediaError("unreadable", name, "no video stream")
        stream = container.streams.video[0]
        times, keyframes = _frame_times(container, stream, name)
        native_fps = float(stream.average_rate or stream.guessed_rate or 0)
        if native_fps <= 0:
            raise MediaError("unreadable", name, "no frame rate")
        indices, sampled_fps = sample_frames(len(times), native_fps, budget)
        size: tuple[int, int] | None = None
        frames = []
        for frame in _frames_at(container, stream, [times[index] for index in indices], keyframes):
            if size is None:
                least = rules.least(len(indices))
                size = _target(name, frame.height, frame.width, rules, least, budget.max_pixels_per_frame)
            frames.append(resize(frame.to_image(), *size))
        if len(frames) < len(indices):
            raise MediaError("truncated", name, f"{len(frames)} of {len(indices)} sampled frames decode")
        return Frames("video", np.stack(frames), rules.temporal_patch / sampled_fps)


def _frame_times(container: Any, stream: Any, name: str) -> tuple[list[int], list[int]]:
    """Time stamps of all frames, and of those that decoding can start at, from the packets alone (no decoding)."""
    times, keyframes, seen = [], [], 0
    for packet in container.demux(stream):
        time = packet.pts if packet.pts is not None else packet.dts
        if packet.size == 0 or time is None:
            continue  # the flush packet at the end
        seen += 1
        if packet.is_corrupt or packet.is_discard:
            continue
        times.append(time)
        if packet.is_keyframe:
            keyframes.append(time)
    if not times:
        raise MediaError("unreadable", name, "no frames")
    if len(times) < 0.95 * stream.frames and seen < stream.frames:
        raise MediaError("truncated", name, f"{len(times)} of {stream.frames} frames are there")
    return sorted(times), sorted(keyframes)


def _frames_at(container: Any, stream: Any, wanted: Sequence[int], keyframes: Sequence[int]) -> Iterator[Any]:
    """The decoded frames at ascending time stamps; jumps to a later keyframe where one lies before the next."""
    container.seek(0 if not keyframes else keyframes[0], stream=stream, backward=True)
    decoded = container.decode(stream)
    last = None
    for time in wanted:
        at = bisect.bisect_right(keyframes, time) - 1
        if last is not None and at >= 0 and keyframes[at] > last:
            container.seek(keyframes[at], stream=stream, backward=True)
            decoded = container.decode(stream)
        for frame in decoded:
            last = frame.pts if frame.pts is not None else frame.dts
            if last is not None and last >= time:
                yield frame
                break
        else:
            return
