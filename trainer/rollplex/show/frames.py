"""Small pictures of what the model saw, decoded again from the dataset's media by worker processes."""

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
class Media:
    """The pictures of each prompt by id, and what the page has to say where there are none at all."""

    of_prompt: Mapping[str, Sequence[Pictures]]
    fault: str = ""


def read_pictures(spec: JobSpec, prompt_ids: Sequence[str]) -> Media:
    """Pictures of the media of these prompts, as the job's budgets sample and resize them."""
    try:
        rows = read_rows(spec.data.train, "spec.data.train", columns_of(spec.data))
        rules = pixel_rules(spec.model.path)
    except JobError as error:
        return Media({}, f"The dataset cannot be read any more: {error.faults[0]}")
    except (ValueError, OSError) as error:
        return Media({}, f"The model folder cannot be read any more: {error}")
    wanted = set(prompt_ids)
    found = {row.id: row.media for row in rows if row.id in wanted}
    video = spec.data.video
    budget = VideoBudget(video.fps, video.max_frames, video.max_pixels_per_frame)
    with WorkerPool(default_workers(), "show", thumbnails_ready) as pool:
        limit = spec.data.decode_timeout_seconds
        running = {
            file: pool.submit(thumbnails, file, budget, rules, timeout=limit)
            for file in dict.fromkeys(file for media in found.values() for file in media)
        }
        done = {file: _pictures(file, future) for file, future in running.items()}
    missing = len(wanted - set(found))
    fault = f"{missing} of these prompts are no longer in {spec.data.train}, so their frames are not shown." * (
        missing > 0
    )
    return Media({prompt: [done[file] for file in media] for prompt, media in found.items()}, fault)


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
