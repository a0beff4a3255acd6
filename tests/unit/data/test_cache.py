"""Decoded media on disk: the same frames, found by content, bounded, and never half an entry."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rollplex.data import media
from rollplex.data.cache import FrameCache, default_folder, open_cache
from rollplex.data.decode import decode
from rollplex.data.media import MediaFile
from rollplex.data.pixels import PixelRules
from rollplex.data.video import Frames, VideoBudget
from tests.unit.data.files import Video, numbered

BUDGET, RULES = VideoBudget(), PixelRules()


@pytest.fixture
def cache(tmp_path: Path) -> FrameCache:
    return open_cache(tmp_path / "cache", 1 << 20)


def frames(seed: int = 0, height: int = 56) -> Frames:
    pixels = np.random.default_rng(seed).integers(0, 256, (2, height, 84, 3), dtype=np.uint8)
    return Frames("video", pixels, 0.1 + seed)


def key(name: str) -> str:
    return hashlib.sha1(name.encode()).hexdigest()


def entries(cache: FrameCache) -> list[Path]:
    return [path for path in cache.folder.glob("??/*") if not path.name.startswith(".")]


def path_of(cache: FrameCache, name: str) -> Path:
    return cache.folder / key(name)[:2] / key(name)


def held(cache: FrameCache) -> int:
    return sum(path.stat().st_size for path in entries(cache))


def same(one: Frames | None, other: Frames) -> bool:
    return (
        one is not None
        and (one.kind, one.seconds_per_grid, one.pixels.shape)
        == (other.kind, other.seconds_per_grid, other.pixels.shape)
        and one.pixels.tobytes() == other.pixels.tobytes()
    )


def test_what_is_stored_is_found_by_another_process_too(cache: FrameCache) -> None:
    assert cache.load(key("ab12")) is None
    cache.store(key("ab12"), frames())
    assert same(open_cache(cache.folder, 1 << 20).load(key("ab12")), frames())
    assert cache.load(key("ab34")) is None
    script = (
        "import sys; from pathlib import Path; from rollplex.data.cache import open_cache\n"
        "print(open_cache(Path(sys.argv[1]), 1 << 20).load(sys.argv[2]).pixels.shape)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, cache.folder, key("ab12")], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "(2, 56, 84, 3)"


def test_second_decoding_gives_the_same_patches_from_the_cache(
    cache: FrameCache, video: Video, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = MediaFile("video", str(video("a.mp4", numbered(8))))
    first = decode(file, BUDGET, RULES, cache)
    monkeypatch.setattr("rollplex.data.decode.read_media", None)  # it must not be called
    again = decode(file, BUDGET, RULES, cache)
    assert (first.value[3], again.value[3]) == (False, True)
    assert again.value[:2] == first.value[:2]
    assert bytes(again.buffer.map[:]) == bytes(first.buffer.map[:])


def test_the_key_is_the_content_not_the_name(cache: FrameCache, tmp_path: Path) -> None:
    for name, content in (("a.png", b"1"), ("b.png", b"1"), ("c.png", b"2")):
        (tmp_path / name).write_bytes(content)
    keys = {
        name: cache.key(MediaFile("image", str(tmp_path / name)), BUDGET, RULES) for name in ("a.png", "b.png", "c.png")
    }
    assert keys["a.png"] == keys["b.png"] != keys["c.png"]
    (tmp_path / "a.png").write_bytes(b"3")
    assert cache.key(MediaFile("image", str(tmp_path / "a.png")), BUDGET, RULES) not in keys.values()


@pytest.mark.parametrize(
    ("kind", "budget", "rules"),
    [
        ("video", BUDGET, RULES),
        ("image", replace(BUDGET, fps=1.0), RULES),
        ("image", replace(BUDGET, max_frames=2), RULES),
        ("image", replace(BUDGET, max_pixels_per_frame=784), RULES),
        ("image", BUDGET, replace(RULES, image_max=784)),
        ("image", BUDGET, replace(RULES, patch=16)),
    ],
)
def test_other_budgets_and_rules_are_other_entries(
    cache: FrameCache, tmp_path: Path, kind: Any, budget: VideoBudget, rules: PixelRules
) -> None:
    (tmp_path / "a").write_bytes(b"1")
    path = str(tmp_path / "a")
    assert cache.key(MediaFile(kind, path), budget, rules) != cache.key(MediaFile("image", path), BUDGET, RULES)


def test_a_large_file_is_known_by_name_size_and_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media, "_HASHED_BYTES", 3)
    path = tmp_path / "a.mp4"
    path.write_bytes(b"1234")
    before, times = MediaFile("video", str(path)).content_key(), (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    assert MediaFile("video", str(path)).content_key() == before
    time.sleep(0.02)  # longer than a kernel's tick, which its times are counted in
    path.write_bytes(b"4321")
    os.utime(path, ns=times)  # as unpacking an archive does
    assert MediaFile("video", str(path)).content_key() != before


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: content[: len(content) // 2],
        lambda content: b"",
        lambda content: content[:-100] + bytes([content[-100] ^ 1]) + content[-99:],
        lambda content: content.replace(b'"seconds_per_grid": 0.1', b'"seconds_per_grid": 0.2'),
        lambda content: content.replace(b"frames-1", b"frames-0"),
    ],
    ids=["a byte short", "half", "empty", "a bit", "a number of its head", "another version"],
)
def test_a_damaged_entry_is_a_miss_and_goes(cache: FrameCache, damage: Any) -> None:
    cache.store(key("ab12"), frames())
    (path,) = entries(cache)
    assert damage(path.read_bytes()) != path.read_bytes()
    path.write_bytes(damage(path.read_bytes()))
    assert cache.load(key("ab12")) is None
    assert entries(cache) == []
    cache.store(key("ab12"), frames())
    assert same(cache.load(key("ab12")), frames())


def test_what_was_not_used_for_longest_makes_room(tmp_path: Path) -> None:
    one = 2 * 56 * 84 * 3 + 200
    cache = open_cache(tmp_path / "cache", 10 * one)
    for number in range(10):
        cache.store(key(f"aa{number}"), frames(number))
        os.utime(path_of(cache, f"aa{number}"), (number, number))
    assert same(cache.load(key("aa0")), frames(0))  # used now: aa1 is the oldest
    cache.store(key("bb"), frames(99))
    assert not path_of(cache, "bb").exists()  # a decoder does not wait for room
    cache.tidy()
    cache.store(key("bb"), frames(99))
    kept = {path.name for path in entries(cache)}
    assert {key("aa0"), key("bb")} <= kept
    assert key("aa1") not in kept
    assert 8 <= len(kept) <= 10
    assert held(cache) <= 10 * one


def test_the_limit_holds_whatever_is_stored(tmp_path: Path) -> None:
    cache = open_cache(tmp_path / "cache", 200_000)
    for number in range(60):
        cache.store(key(str(number)), frames(number, height=28 * (1 + number % 4)))
        assert held(cache) <= 200_000
        cache.tidy()
        cache.store(key(str(number)), frames(number, height=28 * (1 + number % 4)))
        assert path_of(cache, str(number)).exists()
        assert held(cache) <= 200_000
    before = entries(cache)
    cache.store(key("ff"), frames(0, height=28 * 50))  # above the limit by itself
    cache.tidy()
    assert entries(cache) == before


def test_tidying_makes_room_for_the_largest_entry_that_may_be(tmp_path: Path) -> None:
    cache = open_cache(tmp_path / "cache", 60_000)
    for name, height in (("aa", 28), ("bb", 28), ("cc", 112)):  # the last needs all but the whole folder
        cache.store(key(name), frames(0, height=height))
    assert len(entries(cache)) == 2
    cache.tidy()
    cache.store(key("cc"), frames(0, height=112))
    assert [path.name for path in entries(cache)] == [key("cc")]


def test_a_count_left_wrong_by_a_kill_is_put_right(tmp_path: Path) -> None:
    cache = open_cache(tmp_path / "cache", 200_000)
    cache.store(key("aa1"), frames())
    (cache.folder / "size").write_text("199999")
    abandoned = path_of(cache, "aa1").parent / ".rollplex-half-written"
    abandoned.write_bytes(b"0" * 1000)
    os.utime(abandoned, (0, 0))
    cache.store(key("aa2"), frames(1))
    cache.tidy()
    cache.store(key("aa2"), frames(1))
    assert {path.name for path in entries(cache)} == {key("aa1"), key("aa2")}
    assert int((cache.folder / "size").read_text()) == held(cache)
    assert not abandoned.exists()


WRITER = """
import sys
from pathlib import Path
import numpy as np
from rollplex.data.cache import open_cache
from rollplex.data.video import Frames

cache = open_cache(Path(sys.argv[1]), 300_000)
for number in range(120):
    value = (number * 7 + int(sys.argv[2])) % 40
    pixels = np.full((2, 56, 28 * (1 + value % 3), 3), value, dtype=np.uint8)
    found = cache.load(f"{value:040x}")
    assert found is None or found.pixels.tobytes() == pixels.tobytes(), value
    cache.store(f"{value:040x}", Frames("video", pixels, 1.0))
    cache.tidy()
cache.tidy()
"""


def test_nothing_but_entries_is_ever_deleted(tmp_path: Path) -> None:
    """Somebody may name a folder with other things in it."""
    for name in ("videos/0001.mp4", "ab/notes.txt", "ab/.hidden", "readme"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"0" * 5000)
        os.utime(tmp_path / name, (0, 0))
    cache = open_cache(tmp_path, 50_000)
    for number in range(10):
        cache.store(key(str(number)), frames(number, height=28))
        cache.tidy()
    assert 0 < len([path for path in tmp_path.glob("??/*") if len(path.name) == 40]) < 5
    for name in ("videos/0001.mp4", "ab/notes.txt", "ab/.hidden", "readme"):
        assert (tmp_path / name).read_bytes() == b"0" * 5000


def test_a_decoder_does_not_wait_for_a_folder_that_another_tidies(cache: FrameCache) -> None:
    with (cache.folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        started = time.monotonic()
        cache.store(key("ab12"), frames())
        assert time.monotonic() - started < 5
    assert entries(cache) == []
    assert not list(cache.folder.glob("??/.*"))
    cache.store(key("ab12"), frames())
    assert len(entries(cache)) == 1


def test_processes_share_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(folder), str(number)]) for number in range(3)]
    while any(writer.poll() is None for writer in writers):
        with contextlib.suppress(FileNotFoundError):  # an entry that went while we looked
            assert held(FrameCache(folder, 0)) <= 300_000
        time.sleep(0.01)
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    cache = open_cache(folder, 300_000)
    assert held(cache) == int((folder / "size").read_text())
    assert not list(folder.glob("??/.*"))


@pytest.fixture
def unwritable(tmp_path: Path) -> Path:
    """A file is where the folder should be: even root cannot write there."""
    (tmp_path / "file").touch()
    return tmp_path / "file" / "cache"


def test_a_folder_that_went_away_is_no_error(cache: FrameCache, unwritable: Path) -> None:
    gone = FrameCache(unwritable, 1 << 20)
    gone.store(key("ab12"), frames())
    assert gone.load(key("ab12")) is None


def test_default_folder_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLPLEX_CACHE", "/own")
    assert default_folder() == Path("/own/media")
    monkeypatch.delenv("ROLLPLEX_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/user")
    assert default_folder() == Path("/user/rollplex/media")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert default_folder() == Path("/home/me/.cache/rollplex/media")
