"""What the dataset says of a step's prompts: the right answers, and small pictures of what the model saw.

Worker processes decode the media anew, as the job samples and resizes them.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from io import BytesIO

from PIL import Image

from rollplex.api.errors import JobError
from rollplex.api.job import JobSpec
from rollplex.data.columns import columns_of
from rollplex.data.dataset import read_rows
from rollplex.data.decode import default_workers
from rollplex.data.media import MediaFile
from rollplex.data.pixels import MediaError, PixelRules, pixel_rules
from rollplex.data.video import VideoBudget, read_media
from rollplex.processes import CallTimeoutError, WorkerDiedError, WorkerPool

MOST_FRAMES = 16  # shown of one medium
_SIDE = 160  # pixels of a picture's longer side at most


@dataclass(frozen=True)
class Pictures:
    """One medium as data URIs of some of its ``frames``; ``fault`` says why there are none."""

    kind: str
    name: str
    frames: int = 0
    width: int = 0
    height: int = 0
    uris: tuple[str, ...] = ()
    fault: str = ""


@dataclass(frozen=True)
class Source:
    """A prompt's row in the dataset."""

    answer: object
    pictures: Sequence[Pictures]


@dataclass(frozen=True)
class Sources:
    """Rows by prompt id, and what the page has to say where some are missing."""

    of_prompt: Mapping[str, Source]
    fault: str = ""


def read_sources(spec: JobSpec, prompt_ids: Sequence[str]) -> Sources:
    """The rows of these prompts, as far as they are still there."""
    try:
        rows = read_rows(spec.data.train, "spec.data.train", columns_of(spec.data))
        rules = pixel_rules(spec.model.path)
    except JobError as error:
        return Sources({}, f"The dataset cannot be read any more: {error.faults[0]}")
    except (ValueError, OSError) as error:
        return Sources({}, f"The model folder cannot be read any more: {error}")
    wanted = set(prompt_ids)
    found = {row.id: row for row in rows if row.id in wanted}
    video = spec.data.video
    budget = VideoBudget(video.fps, video.max_frames, video.max_pixels_per_frame)
    with WorkerPool(default_workers(), "show", thumbnails_ready) as pool:
        limit = spec.data.decode_timeout_seconds
        running = {
            file: pool.submit(thumbnails, file, budget, rules, timeout=limit)
            for file in dict.fromkeys(file for row in found.values() for file in row.media)
        }
        done = {file: _pictures(file, future) for file, future in running.items()}
    missing = len(wanted - set(found))
    fault = f"{missing} of these prompts are no longer in {spec.data.train}, so their frames are not shown." * (
        missing > 0
    )
    sources = {name: Source(row.answer, [done[file] for file in row.media]) for name, row in found.items()}
    return Sources(sources, fault)


def thumbnails_ready() -> None:
    """Nothing: a worker that can call this has imported the decoders."""


def thumbnails(file: MediaFile, budget: VideoBudget, rules: PixelRules) -> tuple[tuple[int, int, int], list[bytes]]:
    """(frames, height, width) as the model sees them, and JPEGs of at most ``MOST_FRAMES``; raises MediaError."""
    pixels = read_media(file, budget, rules).pixels
    count, height, width, _ = pixels.shape
    shown = min(count, MOST_FRAMES)
    jpegs = []
    for index in range(shown):
        image = Image.fromarray(pixels[index * count // shown])
        image.thumbnail((_SIDE, _SIDE))
        out = BytesIO()
        image.save(out, "JPEG", quality=82)
        jpegs.append(out.getvalue())
    return (count, height, width), jpegs


def _pictures(file: MediaFile, future: Future[tuple[tuple[int, int, int], list[bytes]]]) -> Pictures:
    try:
        (frames, height, width), jpegs = future.result()
    except (MediaError, CallTimeoutError, WorkerDiedError) as error:
        return Pictures(file.kind, file.name, fault=str(error))
    uris = tuple(f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}" for jpeg in jpegs)
    return Pictures(file.kind, file.name, frames, width, height, uris)
