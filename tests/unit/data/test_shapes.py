from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from rollplex.data.dataset import Row, read_rows
from rollplex.data.media import MediaFile
from rollplex.data.pixels import PixelRules
from rollplex.data.shapes import ANSWERS, COLOURS, COUNTS, FORMS, QUESTIONS, SIDE, Scene, Still, frame, render
from rollplex.data.video import VideoBudget, read_media

EVERY_FRAME = VideoBudget(fps=4, max_frames=8)


def rows_of(folder: Path, part: str) -> list[Row]:
    return read_rows(folder / f"{part}.jsonl", "spec.data.train")


@cache
def frames_of(path: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    return read_media(MediaFile("video", path), EVERY_FRAME, PixelRules()).pixels.astype(np.int64)


def pieces(mask: np.ndarray[Any, np.dtype[np.bool_]]) -> int:
    """How many connected areas a mask has; specks of a few pixels are what the encoder left at edges."""
    left = {(int(y), int(x)) for y, x in zip(*np.nonzero(mask), strict=True)}
    found = 0
    while left:
        area, edge = 0, [left.pop()]
        while edge:
            y, x = edge.pop()
            area += 1
            near = {(y + dy, x + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)} & left
            left -= near
            edge += near
        found += area > 20
    return found


def test_render_is_the_same_for_the_same_seed_and_not_for_another(shapes_folder: Path, tmp_path: Path) -> None:
    render(tmp_path / "again", 30, list(QUESTIONS), seed=3)
    render(tmp_path / "other", 30, list(QUESTIONS), seed=4)
    names = sorted(path.relative_to(shapes_folder) for path in shapes_folder.rglob("*") if path.is_file())
    assert len(names) == 30 + 2
    for name in names:
        assert (tmp_path / "again" / name).read_bytes() == (shapes_folder / name).read_bytes(), name
    assert (tmp_path / "other/train.jsonl").read_bytes() != (shapes_folder / "train.jsonl").read_bytes()


def test_training_and_held_out_videos_are_different_files(shapes_folder: Path) -> None:
    videos = {part: {row.media[0].path for row in rows_of(shapes_folder, part)} for part in ("train", "val")}
    assert len(videos["train"]) == 24
    assert len(videos["val"]) == 6
    assert not videos["train"] & videos["val"]


@pytest.mark.parametrize("part", ["train", "val"])
@pytest.mark.parametrize("kind", list(QUESTIONS))
def test_answers_of_a_kind_are_as_frequent_as_each_other(shapes_folder: Path, part: str, kind: str) -> None:
    counts = Counter(row.answer for row in rows_of(shapes_folder, part) if row.fields["kind"] == kind)
    assert set(counts) <= set(ANSWERS[kind])
    frequencies = [counts[answer] for answer in ANSWERS[kind]]
    assert max(frequencies) - min(frequencies) <= 1


def test_answers_follow_from_the_pixels(shapes_folder: Path) -> None:
    checked = Counter[str]()
    for row in rows_of(shapes_folder, "train"):
        frames, kind = frames_of(row.media[0].path), row.fields["kind"]
        coloured = frames.max(-1) - frames.min(-1) > 90
        grey = (frames.max(-1) - frames.min(-1) < 30) & (frames.min(-1) > 110)
        centres = [np.argwhere(mask).mean(0) for mask in coloured]
        dy, dx = centres[-1] - centres[0]
        if kind == "colour":
            seen = frames[coloured].mean(0)
            assert min(COLOURS, key=lambda name: float(np.abs(seen - COLOURS[name]).sum())) == row.answer
        elif kind == "direction":
            assert {"left": -dx, "right": dx, "up": -dy, "down": dy}[row.answer] > SIDE / 2
        elif kind == "count":
            assert pieces(coloured[-1]) == 1
            assert COUNTS[pieces(grey[-1])] == row.answer
        checked[kind] += 1
    assert checked["colour"] == checked["direction"] == checked["count"] == 24


def test_order_is_the_form_of_the_shape_that_appears_last() -> None:
    stills = (Still("square", (10, 10), 1), Still("triangle", (40, 10), 4), Still("circle", (70, 10), 2))
    scene = Scene("red", "circle", "left", 60, 0, stills)
    assert scene.answer("order") == "triangle"
    assert Scene("red", "circle", "left", 60, 0, ()).answer("order") is None
    assert set(ANSWERS["order"]) == set(FORMS)


def test_kinds_choose_the_questions(tmp_path: Path) -> None:
    render(tmp_path, 10, ["colour"], seed=0)
    rows = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    assert len(rows) == 8
    assert rows[0]["messages"][0]["content"] == [
        {"type": "video", "video": "videos/0001.mp4"},
        {"type": "text", "text": "What colour is the moving shape?"},
    ]
    assert {row["kind"] for row in rows} == {"colour"}


@pytest.mark.parametrize("side", [56, 112, 140])
def test_scenes_are_the_same_at_every_size(tmp_path: Path, side: int) -> None:
    scene = Scene("blue", "square", "right", 20, 10, (Still("circle", (40, 60), 0),))
    pixels = frame(scene, 3, side)
    assert pixels.shape == (side, side, 3)
    usual = np.asarray(Image.fromarray(frame(scene, 3)).resize((side, side), Image.Resampling.BOX))
    assert np.abs(pixels.astype(int) - usual).mean() < 4
    render(tmp_path, 10, ["colour"], seed=0, side=side)
    large = VideoBudget(fps=4, max_pixels_per_frame=side * side)
    assert read_media(MediaFile("video", str(tmp_path / "videos/0001.mp4")), large, PixelRules()).pixels.shape == (
        8,
        side,
        side,
        3,
    )


@pytest.mark.parametrize(
    ("videos", "kinds", "side", "message"),
    [
        (9, ["colour"], 84, "videos is 9; at least 10"),
        (10, [], 84, "kinds is"),
        (10, ["size"], 84, "choose from colour, count"),
        (10, ["colour"], 100, "side is 100; it must be a multiple of 28"),
        (10, ["colour"], 28, "side is 28; it must be a multiple of 28, at least 56"),
    ],
)
def test_render_refuses_what_makes_no_set(
    tmp_path: Path, videos: int, kinds: list[str], side: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        render(tmp_path, videos, kinds, seed=0, side=side)
