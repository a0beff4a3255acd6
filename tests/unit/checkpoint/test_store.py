"""Checkpoints on disk: whole or invisible, and checked before use."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from rollplex.checkpoint.store import CheckpointStore
from rollplex.weights.shards import Entry, plan_shards, write_shard

# every call of a save that changes something on the disk, or waits for it
OPERATIONS = ("mkdir", "open", "write", "fsync", "close", "rename", "unlink", "rmdir")


def tensors(step: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    return {
        "matrix": torch.randn(5, 7, generator=generator),
        "half": torch.randn(3, generator=generator).bfloat16(),
        "count": torch.tensor(step),
        "bytes": torch.arange(5, dtype=torch.uint8),
        "none": torch.empty(0, 4),
    }


def save(store: CheckpointStore, step: int, score: float | None = None, shard_bytes: int = 16) -> None:
    entries = {name: Entry.of(tensor) for name, tensor in tensors(step).items()}
    store.write(step, entries, {"at": step}, score, shard_bytes)


def no_fault(step: int, fault: str) -> None:
    raise AssertionError(f"step {step}: {fault}")


def note(faults: list[str], step: int, fault: str) -> None:
    faults.append(f"{step}: {fault}")


def assert_whole(store: CheckpointStore, step: int) -> None:
    """The newest checkpoint is this one, bit for bit."""
    found = store.newest(no_fault)
    assert found is not None
    assert (found.step, found.state()) == (step, {"at": step})
    read = dict(found.tensors())
    assert read.keys() == tensors(step).keys()
    for name, tensor in tensors(step).items():
        assert read[name].dtype == tensor.dtype
        assert torch.equal(read[name], tensor), name


def test_checkpoint_comes_back_bit_for_bit(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "checkpoints")
    assert store.newest(no_fault) is None
    save(store, 3)
    save(store, 20, score=0.5)
    assert_whole(store, 20)
    assert store.scored() == {20: (0.5, None)}
    assert [name for name, _ in store.read(20).tensors("ma")] == ["trix"]
    assert len(list((tmp_path / "checkpoints/step-000020").glob("*.safetensors"))) == 3


def test_shards_are_safetensors_that_the_library_reads(tmp_path: Path) -> None:
    write_shard(tmp_path / "a.safetensors", {name: Entry.of(tensor) for name, tensor in tensors(1).items()})
    read = load_file(tmp_path / "a.safetensors")
    assert read.keys() == tensors(1).keys()
    assert all(torch.equal(read[name], tensor) for name, tensor in tensors(1).items())


@given(sizes=st.lists(st.integers(0, 50), max_size=20), limit=st.integers(1, 60))
def test_shards_hold_every_tensor_once_within_the_limit(sizes: list[int], limit: int) -> None:
    entries = {str(n): Entry.of(torch.empty(size, dtype=torch.uint8)) for n, size in enumerate(sizes)}
    shards = plan_shards(entries, limit)
    assert [name for shard in shards for name in shard] == list(entries)
    assert all(len(shard) == 1 or sum(entries[name].bytes for name in shard) <= limit for shard in shards)
    full = [sum(entries[name].bytes for name in shard) for shard in shards]
    following = [entries[shard[0]].bytes for shard in shards[1:]]
    assert all(size + first > limit for size, first in zip(full, following, strict=False))


@contextmanager
def counted(before: Callable[[int, str, tuple[Any, ...]], None]) -> Iterator[list[str]]:
    """Calls ``before(number, operation, arguments)`` ahead of every file operation; yields their names."""
    real = {name: getattr(os, name) for name in OPERATIONS}
    done: list[str] = []

    def wrap(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            before(len(done), name, arguments)
            done.append(name)
            return real[name](*arguments, **options)

        return call

    for name in OPERATIONS:
        setattr(os, name, wrap(name))
    try:
        yield done
    finally:
        for name, function in real.items():
            setattr(os, name, function)


def save_and_prune(store: CheckpointStore) -> None:
    save(store, 20)
    store.prune(keep_last=2, keep_best=0)


def prepared(folder: Path) -> CheckpointStore:
    store = CheckpointStore(folder)
    save(store, 5)
    save(store, 10)
    return store


@pytest.mark.parametrize("torn", [False, True], ids=["before each operation", "in the middle of each write"])
def test_save_killed_at_every_file_boundary_loses_nothing(tmp_path: Path, torn: bool) -> None:
    straight = prepared(tmp_path / "straight")
    with counted(lambda *_: None) as operations:
        save_and_prune(straight)
    published = operations.index("rename")
    points = [n for n, name in enumerate(operations) if not torn or name == "write"]
    lost = half_read = 0
    write = os.write
    for point in points:
        store = prepared(tmp_path / f"killed-{point}")

        def kill(number: int, name: str, arguments: tuple[Any, ...], point: int = point) -> None:
            if number == point:
                if torn:
                    write(arguments[0], bytes(arguments[1][: len(arguments[1]) // 2]))
                os._exit(9)

        child = os.fork()
        if child == 0:
            with counted(kill):
                save_and_prune(store)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        expected = 20 if point > published else 10
        faults: list[str] = []
        found = store.newest(partial(note, faults))
        half_read += len(faults)
        lost += found is None or found.step != expected
        assert_whole(store, expected)
        store.sweep()
        assert all(name.startswith("step-") for name in os.listdir(store.folder))
        assert_whole(store, expected)
        if expected == 10:  # and the run goes on from there
            save_and_prune(store)
            assert_whole(store, 20)
    kind = "in the middle of a write" if torn else "at a file boundary"
    print(f"\nkilled {kind}: {len(points)} points, {lost} lost, {half_read} half-read")
    assert torn or len(points) >= 30
    assert (lost, half_read) == (0, 0)


def test_what_a_killed_save_left_of_the_same_step_goes(tmp_path: Path) -> None:
    store = prepared(tmp_path)
    left = tmp_path / ".writing-step-000020"
    left.mkdir()
    (left / "tensors-00001-of-00009.safetensors").write_bytes(b"half")
    (left / "manifest.json").write_text("{}")
    save(store, 20)
    assert_whole(store, 20)
    assert not left.exists()
    files = {file.name for file in store.read(20).files}
    assert {path.name for path in store.path(20).iterdir()} == files | {"manifest.json"}


def test_a_save_that_fails_leaves_nothing_of_itself(tmp_path: Path) -> None:
    with counted(lambda *_: None) as operations:
        save(CheckpointStore(tmp_path / "straight"), 20)
    points = [number for number, name in enumerate(operations[: operations.index("rename")]) if name == "write"]
    for point in points:
        store = prepared(tmp_path / f"full-{point}")

        def fail(number: int, name: str, _: tuple[Any, ...], point: int = point) -> None:
            if number == point and name == "write":  # no room for bytes, but for what takes some away
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with counted(fail), pytest.raises(OSError, match="No space"):
            save(store, 20)
        assert sorted(os.listdir(store.folder)) == ["step-000005", "step-000010"]
        save(store, 20)
        assert_whole(store, 20)
    assert len(points) > 5


def test_a_score_is_noted_later_and_a_kill_on_the_way_costs_the_score_alone(tmp_path: Path) -> None:
    straight = prepared(tmp_path / "straight")
    before = straight.read(10)
    with counted(lambda *_: None) as operations:
        straight.rate(10, 0.5, "how")
    assert straight.read(10) == replace(before, score=0.5, measured="how")
    for point in range(len(operations)):
        store = prepared(tmp_path / f"killed-{point}")

        def kill(number: int, name: str, _: tuple[Any, ...], point: int = point) -> None:
            if number == point:
                os._exit(9)

        child = os.fork()
        if child == 0:
            with counted(kill):
                store.rate(10, 0.5, "how")
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        assert_whole(store, 10)
        assert store.read(10).score in (None, 0.5)
        store.rate(10, 0.5, "how")
        assert_whole(store, 10)
        assert store.scored() == {10: (0.5, "how")}


@pytest.mark.parametrize("place", ["tensors-00002-of-00003.safetensors", "state.json"])
def test_changed_byte_is_found_and_the_checkpoint_before_is_taken(tmp_path: Path, place: str) -> None:
    store = prepared(tmp_path)
    path = store.path(10) / place
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    faults: list[tuple[int, str]] = []
    found = store.newest(lambda step, fault: faults.append((step, fault)))
    assert found is not None
    assert found.step == 5
    assert faults == [(10, f"the content of {place} has changed (its hash is another)")]
    aside = store.set_aside(10)
    assert aside.name == "damaged-step-000010"
    assert_whole(store, 5)
    save(store, 10)  # the run comes by again
    assert_whole(store, 10)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda path: (path / "state.json").unlink(), r"state\.json cannot be read \(No such file"),
        (lambda path: (path / "state.json").write_text("{}"), r"state\.json has 2 bytes instead of \d+"),
        (lambda path: (path / "manifest.json").write_text("{"), r"manifest\.json cannot be read"),
        (lambda path: (path / "manifest.json").write_text('{"format": 9}'), r"its format is 9, this version reads 1"),
    ],
)
def test_damage_is_named(tmp_path: Path, spoil: Callable[[Path], object], said: str) -> None:
    store = CheckpointStore(tmp_path)
    save(store, 1)
    spoil(store.path(1))
    faults: list[str] = []
    assert store.newest(lambda step, fault: faults.append(fault)) is None
    assert len(faults) == 1
    assert re.match(said, faults[0])


@pytest.mark.parametrize(
    ("last", "best", "kept"),
    [
        (1, 0, [7]),
        (2, 0, [6, 7]),
        (1, 1, [3, 7]),
        (1, 2, [2, 3, 7]),
        (2, 4, [2, 3, 5, 6, 7]),
        (9, 0, [1, 2, 3, 5, 6, 7]),
    ],
)
def test_newest_and_best_are_kept(tmp_path: Path, last: int, best: int, kept: list[int]) -> None:
    store = CheckpointStore(tmp_path)
    for step, score in {1: 0.1, 2: 0.7, 3: 0.7, 5: 0.3, 6: None, 7: 0.2}.items():
        save(store, step, score)
    store.prune(last, best)
    assert store.steps() == kept


def test_step_is_saved_once(tmp_path: Path) -> None:
    store = prepared(tmp_path)
    with pytest.raises(FileExistsError):
        save(store, 10)
    assert_whole(store, 10)
