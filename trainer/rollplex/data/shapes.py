"""A CLEVRER-like set that renders in seconds: short videos of coloured shapes and questions with one-word answers.

In every video one large coloured shape moves in a straight line. Up to three small grey shapes appear beside its lane,
one after another, and stay. So four kinds of question have answers that follow from the scene by rule:

========= ============================================ ==========================
kind      question                                     answers
========= ============================================ ==========================
colour    What colour is the moving shape?             red green blue yellow
count     How many shapes are there at the end?        one two three four
direction Which way does the large shape move?         left right up down
order     Which shape appears last?                    circle square triangle
========= ============================================ ==========================

``order`` is asked only where a grey shape appears. Within a kind the answers are as frequent as each other (counts
differ by at most one), in the training and in the held-out part alike: no answer can be learnt from its frequency.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from PIL import Image, ImageDraw
from rich.progress import track

SIDE = 84  # of the scenes' own coordinates, and of a frame in pixels unless another size is asked for
FRAMES = 8
FPS = 4  # two seconds; sampled at 2 fps it has four frames, two temporal rows
LARGE, SMALL = 13, 7  # radii in pixels

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (220, 30, 30),
    "green": (30, 170, 50),
    "blue": (40, 60, 220),
    "yellow": (235, 215, 30),
}
FORMS = ("circle", "square", "triangle")
STEPS: dict[str, tuple[int, int]] = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
COUNTS = ("one", "two", "three", "four")

QUESTIONS: dict[str, str] = {
    "colour": "What colour is the moving shape?",
    "count": "How many shapes are there at the end?",
    "direction": "Which way does the large shape move?",
    "order": "Which shape appears last?",
}
ANSWERS: dict[str, tuple[str, ...]] = {
    "colour": tuple(COLOURS),
    "count": COUNTS,
    "direction": tuple(STEPS),
    "order": FORMS,
}


@dataclass(frozen=True)
class Still:
    """A grey shape: its form, its centre in pixels, and the first frame that shows it."""

    form: str
    centre: tuple[int, int]
    appears: int


@dataclass(frozen=True)
class Scene:
    """What one video shows; ``lane`` is the moving shape's coordinate across its direction, in pixels."""

    colour: str
    form: str
    direction: str
    lane: int
    background: int
    stills: tuple[Still, ...]

    def answer(self, kind: str) -> str | None:
        """The right word for a kind of question, None where the question makes no sense."""
        if kind == "colour":
            return self.colour
        if kind == "count":
            return COUNTS[len(self.stills)]
        if kind == "direction":
            return self.direction
        return max(self.stills, key=lambda still: still.appears).form if self.stills else None


def render(out: Path, videos: int, kinds: Sequence[str], seed: int, side: int = SIDE) -> None:
    """Write ``out/videos/*.mp4``, ``out/train.jsonl`` and ``out/val.jsonl``; the same seed writes the same files.

    Args:
        out: folder, made if missing; files of the same names are replaced.
        videos: how many videos in all, at least 10; every fifth is held out for ``val.jsonl``.
        kinds: kinds of question to ask, a subset of :data:`QUESTIONS`.
        seed: of everything random.
        side: of a frame in pixels, a multiple of 28 so that no resize blurs it; (side / 28)^2 tokens per two frames.

    Raises:
        ValueError: too few videos, a side that is no multiple of 28, or no or an unknown kind.
    """
    if side < 56 or side % 28:
        raise ValueError(f"side is {side}; it must be a multiple of 28, at least 56")
    if videos < 10:
        raise ValueError(f"videos is {videos}; at least 10 are needed to hold some out")
    unknown = [kind for kind in kinds if kind not in QUESTIONS]
    if unknown or not kinds:
        raise ValueError(f"kinds is {list(kinds)}; choose from {', '.join(QUESTIONS)}")
    held_out = videos // 5
    rng = random.Random(seed)
    parts = {"train": _scenes(videos - held_out, rng), "val": _scenes(held_out, rng)}
    (out / "videos").mkdir(parents=True, exist_ok=True)
    number = 0
    for part, scenes in parts.items():
        rows = []
        for scene in track(scenes, description=f"{part}: {len(scenes)} videos"):
            number += 1
            name = f"videos/{number:04d}.mp4"
            write_video(out / name, [frame(scene, index, side) for index in range(FRAMES)], FPS)
            rows += [_row(number, name, kind, answer) for kind in kinds if (answer := scene.answer(kind))]
        (out / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def _row(number: int, video: str, kind: str, answer: str) -> dict[str, Any]:
    content = [{"type": "video", "video": video}, {"type": "text", "text": QUESTIONS[kind]}]
    return {
        "id": f"{number:04d}-{kind}",
        "messages": [{"role": "user", "content": content}],
        "answer": answer,
        "kind": kind,
    }


def _balanced(values: Sequence[str], length: int, rng: random.Random) -> list[str]:
    """``length`` values in random order, each as often as the others (counts differ by at most one)."""
    order = rng.sample(values, len(values))  # so that it is not always the same value that is short by one
    chosen = [order[index % len(order)] for index in range(length)]
    rng.shuffle(chosen)
    return chosen


def _scenes(length: int, rng: random.Random) -> list[Scene]:
    colours = _balanced(ANSWERS["colour"], length, rng)
    directions = _balanced(ANSWERS["direction"], length, rng)
    counts = [COUNTS.index(word) for word in _balanced(COUNTS, length, rng)]
    last_forms = iter(_balanced(FORMS, sum(count > 0 for count in counts), rng))
    scenes = []
    for colour, direction, count in zip(colours, directions, counts, strict=True):
        lane = rng.randint(LARGE + 2, SIDE - LARGE - 2)
        forms = [rng.choice(FORMS) for _ in range(count - 1)] + ([next(last_forms)] if count else [])
        appears = sorted(rng.sample(range(FRAMES - 2), count))  # all of them are seen in the last frames
        centres = _centres(count, lane, horizontal=STEPS[direction][1] == 0, rng=rng)
        stills = tuple(Still(*parts) for parts in zip(forms, centres, appears, strict=True))
        scenes.append(Scene(colour, rng.choice(FORMS), direction, lane, rng.randint(0, 60), stills))
    return scenes


def _centres(count: int, lane: int, *, horizontal: bool, rng: random.Random) -> list[tuple[int, int]]:
    """Centres of the small shapes that touch neither each other nor the large shape's lane."""
    centres: list[tuple[int, int]] = []
    while len(centres) < count:
        x, y = (rng.randint(SMALL + 1, SIDE - SMALL - 1) for _ in range(2))
        clear = abs((y if horizontal else x) - lane) > LARGE + SMALL
        if clear and all(max(abs(x - a), abs(y - b)) > 2 * SMALL + 1 for a, b in centres):
            centres.append((x, y))
    return centres


def frame(scene: Scene, index: int, side: int = SIDE) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Frame ``index`` of a scene, [side, side, 3] uint8 RGB."""
    scale = 4 * side // SIDE  # drawn larger and shrunk: smooth edges, and motion finer than a pixel
    image = Image.new("RGB", (SIDE * scale, SIDE * scale), (scene.background,) * 3)
    draw = ImageDraw.Draw(image)
    for still in scene.stills:
        if index >= still.appears:
            _draw(draw, still.form, still.centre, SMALL, (150, 150, 150), scale)
    along = LARGE + 2 + (SIDE - 2 * LARGE - 4) * index / (FRAMES - 1)
    dx, dy = STEPS[scene.direction]
    travelled = along if dx + dy > 0 else SIDE - along
    centre = (travelled, scene.lane) if dx else (scene.lane, travelled)
    _draw(draw, scene.form, centre, LARGE, COLOURS[scene.colour], scale)
    return np.asarray(image.resize((side, side), Image.Resampling.BOX))


def _draw(
    draw: ImageDraw.ImageDraw,
    form: str,
    centre: tuple[float, float],
    radius: int,
    colour: tuple[int, int, int],
    scale: int,
) -> None:
    x, y, r = centre[0] * scale, centre[1] * scale, radius * scale
    if form == "circle":
        draw.ellipse((x - r, y - r, x + r, y + r), fill=colour)
    elif form == "square":
        draw.rectangle((x - 0.85 * r, y - 0.85 * r, x + 0.85 * r, y + 0.85 * r), fill=colour)
    else:
        draw.polygon([(x, y - r), (x - r, y + 0.8 * r), (x + r, y + 0.8 * r)], fill=colour)


def write_video(path: Path, frames: Sequence[np.ndarray[Any, np.dtype[np.uint8]]], fps: int | Fraction) -> None:
    """Encode RGB frames [height, width, 3] uint8 as H.264 at near-lossless quality; equal frames give equal bytes."""
    height, width, _ = frames[0].shape
    with av.open(str(path), "w", container_options={"fflags": "+bitexact"}) as container:
        stream = container.add_stream("libx264", rate=fps, options={"crf": "6", "preset": "veryfast", "threads": "1"})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.codec_context.flags |= av.codec.context.Flags.bitexact
        for pixels in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())
