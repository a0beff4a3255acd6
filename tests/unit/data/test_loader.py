"""Batches: the same whatever the timing, full whatever is skipped, and never later than a time limit allows."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rollplex.api.data import DataSpec, VideoSpec
from rollplex.api.errors import JobError
from rollplex.data.dataset import Row, read_rows
from rollplex.data.loader import Loader
from rollplex.data.pixels import pixel_rules
from rollplex.data.reader import Reader
from rollplex.data.sampler import Sampler
from rollplex.data.video import VideoBudget, read_media
from tests.unit.data.files import Video, numbered
from tests.unit.data.reading import ids, reading


@pytest.fixture(scope="module")
def reader(model_folder: Path) -> Iterator[Reader]:
    with reading(model_folder) as reader:
        yield reader


@pytest.fixture(scope="module")
def rows(shapes_folder: Path) -> list[Row]:
    return read_rows(shapes_folder / "train.jsonl", "spec.data.train")[:10]


def dataset(folder: Path, media: list[str]) -> list[Row]:
    """One row for each named file, asked about as a video (or an image, by its suffix)."""
    lines = []
    for number, name in enumerate(media):
        kind = "image" if name.endswith(".png") else "video"
        content = [{"type": kind, kind: name}, {"type": "text", "text": "What?"}]
        lines.append(json.dumps({"id": str(number), "messages": [{"role": "user", "content": content}], "answer": "x"}))
    (folder / "rows.jsonl").write_text("\n".join(lines))
    return read_rows(folder / "rows.jsonl", "spec.data.train")


def test_batches_follow_the_sampler_whatever_the_workers(model_folder: Path, rows: list[Row]) -> None:
    sampler = Sampler(len(rows), 5)
    expected = [[rows[sampler.row(step * 4 + place)].id for place in range(4)] for step in range(5)]
    for workers in (1, 3):
        with reading(model_folder, workers=workers) as reader:
            loader = Loader(reader, rows, prompts_per_step=4, seed=5)
            assert ids(loader, range(1, 6)) == expected
            assert loader.batch(5).position == 20
            assert not loader.skipped


def test_prompts_hold_what_decoding_here_would_give(reader: Reader, model_folder: Path, rows: list[Row]) -> None:
    loader = Loader(reader, rows, prompts_per_step=3, seed=1)
    rules = pixel_rules(model_folder)
    by_id = {row.id: row for row in rows}
    for prompt in loader.batch(1).prompts:
        row = by_id[prompt.id]
        frames = read_media(row.media[0], VideoBudget(), rules)
        (media,) = prompt.media
        np.testing.assert_array_equal(media.patches.numpy(), frames.patches(rules))
        assert media.patches.dtype == torch.float32
        assert (media.grid, media.seconds_per_grid) == ((2, 6, 6), 1.0)
        assert (prompt.answer, prompt.row) == (row.answer, row.fields)


def test_the_last_batch_can_be_had_again_and_no_other(reader: Reader, rows: list[Row]) -> None:
    loader = Loader(reader, rows, prompts_per_step=2, seed=1)
    first = loader.batch(1)
    assert loader.batch(1) is first
    loader.batch(2)
    for step in (1, 4):
        with pytest.raises(ValueError, match=f"step is {step}; the loader goes on with 3"):
            loader.batch(step)


def test_a_resumed_loader_goes_on_in_the_same_order(reader: Reader, rows: list[Row]) -> None:
    straight = ids(Loader(reader, rows, prompts_per_step=3, seed=2), range(1, 7))
    first = Loader(reader, rows, prompts_per_step=3, seed=2)
    ids(first, range(1, 4))
    position = first.batch(3).position
    for given in (position, None):
        resumed = Loader(reader, rows, prompts_per_step=3, seed=2, first_step=4, position=given)
        assert ids(resumed, range(4, 7)) == straight[3:]


def test_rows_about_one_video_in_flight_share_its_decoding(reader: Reader, rows: list[Row]) -> None:
    same = [row for row in rows if row.media == rows[0].media]
    assert len(same) >= 3
    prompts = reader.read_all(same, "spec.evaluation.data")
    assert len({id(prompt.media[0]) for prompt in prompts}) == 1


def test_read_all_keeps_the_order_of_more_rows_than_are_in_flight(reader: Reader, shapes_folder: Path) -> None:
    everything = read_rows(shapes_folder / "train.jsonl", "spec.data.train")
    assert len(everything) > 64
    prompts = reader.read_all(everything, "spec.evaluation.data")
    assert [prompt.id for prompt in prompts] == [row.id for row in everything]


def test_bad_rows_are_skipped_counted_and_replaced_by_the_next(
    model_folder: Path, video: Video, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a.mp4", "b.mp4", "c.mp4"):
        video(name, numbered(4))
    (tmp_path / "garbage.mp4").write_bytes(b"garbage" * 50)
    video("long.mp4", numbered(40, 112, 112), fps=2)
    video("wide.mp4", numbered(2, 16, 3216))
    os.mkfifo(tmp_path / "blocks.mp4")  # opening it waits for a writer that never comes
    rows = dataset(tmp_path, ["a.mp4", "garbage.mp4", "b.mp4", "blocks.mp4", "long.mp4", "c.mp4", "wide.mp4"])
    orders = []
    with reading(model_folder, decode_timeout_seconds=1.0, max_prompt_tokens=60) as reader:
        for _ in range(2):
            loader = Loader(reader, rows, prompts_per_step=3, seed=1)
            started = time.monotonic()
            orders.append([set(step) for step in ids(loader, range(1, 3))])
            assert time.monotonic() - started < 15
            # the second epoch tries them again, and neither counts nor logs them once more
            assert loader.skipped == {"unreadable": 1, "timeout": 1, "too_long": 1, "aspect_ratio": 1}
            assert loader.skipped_ids == {"1", "3", "4", "6"}
    good = {"0", "2", "5"}
    assert orders == [[good, good], [good, good]]  # each epoch shows the good rows once
    assert caplog.text.count("row 3 (video) skipped") == 2  # once for each loader
    assert "timeout (no result within 1 s)" in caplog.text
    assert "tokens; data.maxPromptTokens is 60" in caplog.text


def test_check_is_content_with_one_row_that_works_and_takes_nothing_from_the_run(
    model_folder: Path, video: Video, tmp_path: Path
) -> None:
    video("good.mp4", numbered(4))
    (tmp_path / "bad.mp4").write_bytes(b"bad")
    rows = dataset(tmp_path, ["bad.mp4"] * 7 + ["good.mp4"])
    with reading(model_folder) as reader:
        loader = Loader(reader, rows, prompts_per_step=2, seed=3)
        loader.check()
        assert not loader.skipped
        assert [prompt.id for prompt in loader.batch(1).prompts] == ["7", "7"]
        assert loader.skipped == {"unreadable": len(loader.skipped_ids)}
        resumed = Loader(
            reader, rows, prompts_per_step=2, seed=3, skipped=loader.skipped, skipped_ids=sorted(loader.skipped_ids)
        )
        resumed.batch(1)
        assert resumed.skipped == loader.skipped  # the rows of before the resume are known


@pytest.mark.parametrize(
    ("media", "data", "message"),
    [
        (["bad.mp4"] * 3, {}, r"^spec.data.train: no row can be used; skipped: unreadable 3$"),
        (
            ["good.mp4", "bad.mp4"],
            {"max_prompt_tokens": 20},
            r"skipped: too_long 1 \(spec.data.maxPromptTokens is 20\), unreadable 1$",
        ),
    ],
)
def test_a_set_of_which_nothing_is_left_is_an_error_before_and_during_the_run(
    model_folder: Path, video: Video, tmp_path: Path, media: list[str], data: dict[str, Any], message: str
) -> None:
    video("good.mp4", numbered(4))
    (tmp_path / "bad.mp4").write_bytes(b"bad")
    rows = dataset(tmp_path, media)
    calls: list[Callable[[Loader, Reader], Any]] = [
        lambda loader, reader: loader.check(),
        lambda loader, reader: loader.batch(1),
        lambda loader, reader: reader.read_all(rows, "spec.data.train"),
    ]
    with reading(model_folder, **data) as reader:
        for call in calls:
            with pytest.raises(JobError, match=message):
                call(Loader(reader, rows, prompts_per_step=2, seed=0), reader)


def test_a_template_that_drops_media_is_an_error_of_the_job(reader: Reader, rows: list[Row]) -> None:
    with reading_template(reader, "{{ messages[0]['content'][1]['text'] }}"):
        loader = Loader(reader, rows, prompts_per_step=2, seed=0)
        with pytest.raises(
            JobError, match=r"spec.data.train: row .*: 1 media, but the chat template made 0 placeholders"
        ):
            loader.check()


@contextmanager
def reading_template(reader: Reader, template: str) -> Iterator[None]:
    tokenizer = reader._builder.tokenizer
    before, tokenizer.chat_template = tokenizer.chat_template, template
    yield
    tokenizer.chat_template = before


def test_the_budgets_of_the_job_reach_the_decoder(model_folder: Path, video: Video, tmp_path: Path) -> None:
    video("a.mp4", numbered(16, 224, 224))
    rows = dataset(tmp_path, ["a.mp4"])
    spec = VideoSpec(fps=1.0, max_frames=3, max_pixels_per_frame=112 * 112)
    with reading(model_folder, video=spec) as reader:
        (prompt,) = reader.read_all(rows, "spec.data.train")
    assert prompt.media[0].grid == (2, 8, 8)
    assert prompt.media[0].seconds_per_grid == pytest.approx(2 / 0.75)


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("config.json", "config.json is missing"),
        ("processor_config.json", "has no preprocessor_config.json"),
        ("tokenizer.json", "."),
    ],
)
def test_a_model_folder_that_lacks_something_is_a_fault_of_the_job(
    model_folder: Path, tmp_path: Path, missing: str, message: str
) -> None:
    for path in model_folder.iterdir():
        if path.name != missing:
            (tmp_path / path.name).write_bytes(path.read_bytes())
    with pytest.raises(JobError, match=rf"^spec.model.path: .*{message}") as caught:
        Reader(tmp_path, DataSpec(train="-"))
    assert "\n" not in str(caught.value)


def test_logging_names_the_modalities(shapes_folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        rows = read_rows(shapes_folder / "val.jsonl", "spec.evaluation.data")
    assert f"{len(rows)} rows ({len(rows)} video)" in caplog.text
