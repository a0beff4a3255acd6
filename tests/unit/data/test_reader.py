"""What a reader makes of rows: filters, one decoding a medium, the cache."""

from __future__ import annotations

import fcntl
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pytest
import torch
from PIL import Image
from pyarrow import parquet  # type: ignore[import-untyped, unused-ignore]

from rollplex.api.data import CacheSpec, DataSpec
from rollplex.api.errors import JobError
from rollplex.data.columns import PRESETS
from rollplex.data.dataset import Row, read_rows
from rollplex.data.loader import Loader
from rollplex.data.pixels import MediaError
from rollplex.data.reader import Reader
from tests.unit.data.reading import ids, reading


@pytest.fixture(scope="module")
def rows(shapes_folder: Path) -> list[Row]:
    return read_rows(shapes_folder / "train.jsonl", "spec.data.train")[:10]


def asked(name: str, words: str) -> Row:
    return Row(name, ({"role": "user", "content": words},), (), "x", {})


def test_rows_too_long_by_their_text_alone_are_left_out_before_any_work(
    model_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with reading(model_folder, max_prompt_tokens=60) as reader:
        rows = [asked("short", "What?"), asked("long", "colour " * 50), asked("few", "colour " * 9)]
        loader = Loader(reader, rows, prompts_per_step=2, seed=1)
        assert "spec.data.train: 1 of 3 rows left out: text alone above maxPromptTokens 60" in caplog.text
        assert {name for step in ids(loader, range(1, 3)) for name in step} == {"short", "few"}
        assert not loader.skipped
        assert [prompt.id for prompt in reader.read_all(rows, "spec.evaluation.data")] == ["short", "few"]
        assert reader.left_out == {"spec.data.train": 1, "spec.evaluation.data": 1}
        with pytest.raises(JobError, match=r"^spec.data.train: no row can be used; skipped: too_long 1 \("):
            Loader(reader, rows[1:2], prompts_per_step=2, seed=1)


def test_group_by_media_puts_questions_about_one_video_into_one_batch(model_folder: Path, shapes_folder: Path) -> None:
    by_video = {row.media: row for row in read_rows(shapes_folder / "train.jsonl", "spec.data.train")}
    rows = [replace(row, id=f"{n} {row.id}") for row in list(by_video.values())[:8] for n in range(4)]
    video_of = {row.id: row.media[0].path for row in rows}
    with reading(model_folder, group_by_media=True) as reader:
        straight = ids(Loader(reader, rows, prompts_per_step=8, seed=5), range(1, 5))
        resumed = Loader(reader, rows, prompts_per_step=8, seed=5, first_step=3, position=16)
        assert ids(resumed, range(3, 5)) == straight[2:]
    for batch in straight:
        videos = [video_of[name] for name in batch]
        assert sorted(videos.count(video) for video in set(videos)) == [4, 4]
    assert len({name for batch in straight for name in batch}) == 32


def test_copies_of_one_image_in_parquet_are_one_medium(model_folder: Path, tmp_path: Path) -> None:
    content = BytesIO()
    Image.new("RGB", (84, 56), "red").save(content, "PNG")
    image = {"bytes": content.getvalue(), "path": None}
    table = pa.Table.from_pylist([{"problem": "<image>?", "answer": "red", "images": [image]}] * 5)
    parquet.write_table(table, tmp_path / "a.parquet")
    rows = read_rows(tmp_path / "a.parquet", "spec.data.train", PRESETS["easyr1"])
    with reading(model_folder) as reader:
        prompts = reader.read_all(rows, "spec.data.train")
        assert len(prompts) == 5
        assert len({id(prompt.media[0]) for prompt in prompts}) == 1
        assert reader.cache == {"hits": 0, "misses": 1}


def test_a_parquet_file_that_changes_under_a_run_is_seen(model_folder: Path, tmp_path: Path) -> None:
    def write(colour: str) -> None:
        content = BytesIO()
        Image.new("RGB", (84, 56), colour).save(content, "PNG")
        row = {"problem": "<image>?", "answer": "x", "images": [{"bytes": content.getvalue(), "path": None}]}
        parquet.write_table(pa.Table.from_pylist([row]), tmp_path / "a.parquet")

    write("blue")
    rows = read_rows(tmp_path / "a.parquet", "spec.data.train", PRESETS["easyr1"])
    write("green")
    with (
        reading(model_folder, cache=CacheSpec(path=str(tmp_path / "cache"))) as reader,
        pytest.raises(JobError, match=r"no row can be used; skipped: unreadable 1$"),
    ):
        reader.read_all(rows, "spec.data.train")


def test_media_come_from_the_cache_the_second_time(model_folder: Path, rows: list[Row], tmp_path: Path) -> None:
    cache = CacheSpec(path=str(tmp_path / "cache"))
    videos = len({row.media for row in rows})
    prompts = []
    for metrics in (
        {"data/skipped": 0, "data/cache_hits": 0, "data/cache_misses": videos},
        {"data/skipped": 0, "data/cache_hits": videos, "data/cache_misses": 0},
    ):
        with reading(model_folder, cache=cache) as reader:
            loader = Loader(reader, rows, prompts_per_step=len(rows), seed=1)
            prompts.append(loader.batch(1).prompts)
            # the next batch may be under way, but is not counted before it is served
            assert loader.metrics() == metrics
    for first, again in zip(*prompts, strict=True):
        assert first.key == again.key
        assert torch.equal(first.media[0].patches, again.media[0].patches)


def entry_sizes(folder: Path) -> list[int]:
    """Bytes of every entry at one moment: a run makes room behind its readers' backs, and is kept from it here."""
    with (folder / "lock").open("r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return [path.stat().st_size for path in folder.glob("??/[!.]*")]


def test_a_full_cache_makes_room_while_the_run_goes_on(model_folder: Path, rows: list[Row], tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    with reading(model_folder, cache=CacheSpec(path=str(folder), max_bytes="200k")) as reader:  # room for two videos
        first = reader.read_all(rows[:1], "spec.data.train")[0].media[0]
        for _ in range(20):
            reader.read_all(rows, "spec.data.train")
            assert sum(entry_sizes(folder)) <= 200_000
        assert reader.cache["misses"] > 2
    assert 0 < len(entry_sizes(folder)) <= 200_000 / (first.patches.numel() / 2)


def test_a_cache_of_the_job_that_cannot_be_written_is_a_fault_of_the_job(model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = CacheSpec(path=str(tmp_path / "file" / "cache"))
    with pytest.raises(JobError, match=r"^spec.data.cache.path: .*file/cache cannot be written: Not a directory$"):
        Reader(model_folder, DataSpec(train="-", cache=cache))


def test_a_home_that_cannot_be_written_is_no_reason_to_stop(
    model_folder: Path,
    rows: list[Row],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ROLLPLEX_CACHE", str(tmp_path / "file"))
    with reading(model_folder) as reader:
        assert len(reader.read_all(rows[:2], "spec.data.train")) == 2
    assert "no cache of decoded media: " in caplog.text
    assert "data.cache.path may name another folder" in caplog.text


def test_a_file_that_failed_once_is_tried_again(model_folder: Path, rows: list[Row], tmp_path: Path) -> None:
    """A hiccup of a file system must not take a video out of all later epochs."""
    whole = Path(rows[0].media[0].path).read_bytes()
    video = tmp_path / "video.mp4"
    row = replace(rows[0], media=(replace(rows[0].media[0], path=str(video)),))
    with reading(model_folder) as reader:
        video.write_bytes(whole[:200])
        failed = reader.request(row)
        with pytest.raises(MediaError):
            failed.prompt()
        video.write_bytes(whole)
        assert reader.request(row).prompt().id == row.id  # although the failed one is still held
