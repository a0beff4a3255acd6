"""Decoded media on disk: frames at their final size, found again by the content they were made from.

What is kept is bytes of pixels; patches follow from them by a table look-up, and would take four times the space. Many
processes share one folder. An entry is written aside and renamed, so it is there as a whole or not at all; one that
does not match its checksum is a miss and goes. ``size`` holds the bytes of all entries: whoever adds one locks that
file, and first makes room by deleting what was not used for longest.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import tempfile
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from rollplex.data.media import MediaFile
from rollplex.data.pixels import PixelRules
from rollplex.data.video import DECODERS, Frames, VideoBudget

_MAGIC = b"rollplex-frames-1\n"
_ABANDONED_SECONDS = 3600.0  # a file that its writer, killed, will not rename
_ROOM = 0.9  # share of the limit that is left once room had to be made, so that it is not made at every entry


@dataclass(frozen=True)
class FrameCache:
    """A folder of decoded media. Safe for any number of processes and threads.

    Its entries never take more than ``max_bytes``; what is being written comes on top, an entry a writer.

    No method raises for a full disk, a file system without locks or a folder that went away: then nothing is found or
    kept.
    """

    folder: Path
    max_bytes: int

    def key(self, file: MediaFile, budget: VideoBudget, rules: PixelRules) -> str:
        """Name of the entry of a medium under a budget and rules; raises OSError if the file cannot be read."""
        made_by = (_MAGIC, file.kind, file.content_key(), budget, rules, DECODERS)
        return hashlib.blake2b(repr(made_by).encode(), digest_size=20).hexdigest()

    def load(self, key: str) -> Frames | None:
        """The frames, or None: a miss."""
        path = self._entry(key)
        try:
            with path.open("rb") as file:
                frames = _read(file)
                if frames is not None:
                    with contextlib.suppress(PermissionError):  # another user's entry
                        os.utime(file.fileno())  # used now
                    return frames
        except OSError:
            return None
        with contextlib.suppress(OSError):
            path.unlink()
        return None

    def store(self, key: str, frames: Frames) -> None:
        """Keep the frames, unless they alone are above the limit."""
        content = _written(frames)
        size = sum(map(len, content))
        if size > self.max_bytes:
            return
        path = self._entry(key)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, aside = tempfile.mkstemp(prefix=".", dir=path.parent)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.writelines(content)
                with self._locked() as total:
                    if path.exists():
                        return
                    used = _number(total)
                    if used + size > self.max_bytes:
                        used = self._make_room(size)
                    # counted first: a kill in between leaves the count too high, and the next clean-up sets it right
                    _write_number(total, used + size)
                    os.replace(aside, path)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(aside)

    def _entry(self, key: str) -> Path:
        return self.folder / key[:2] / key

    @contextlib.contextmanager
    def _locked(self) -> Iterator[BinaryIO]:
        with os.fdopen(os.open(self.folder / "size", os.O_RDWR | os.O_CREAT, 0o666), "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # goes with the process, however it ends
            yield file

    def _make_room(self, size: int) -> int:
        """Delete what was used longest ago until ``size`` more bytes fit; returns the bytes left."""
        entries = []
        for shelf in os.scandir(self.folder):
            if not shelf.is_dir():
                continue
            for item in os.scandir(shelf):
                stat = item.stat()
                if not item.name.startswith("."):
                    entries.append((stat.st_mtime_ns, stat.st_size, item.path))
                elif stat.st_mtime < time.time() - _ABANDONED_SECONDS:
                    _unlink(item.path)
        left = sum(entry_size for _, entry_size, _ in entries)
        if left + size <= self.max_bytes:
            return left  # the count was too high
        for _, entry_size, path in sorted(entries):
            if left + size <= self.max_bytes * _ROOM or left == 0:
                break
            _unlink(path)
            left -= entry_size
        return left


def default_folder() -> Path:
    """``$ROLLPLEX_CACHE``, else ``rollplex`` in the user's cache folder (``$XDG_CACHE_HOME``, else ``~/.cache``)."""
    own = os.environ.get("ROLLPLEX_CACHE")
    user = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return (Path(own) if own else Path(user) / "rollplex") / "media"


def open_cache(folder: Path, max_bytes: int) -> FrameCache:
    """The cache in a folder, which is made if missing; raises OSError where it cannot be written."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass
    return FrameCache(folder.absolute(), max_bytes)


def _written(frames: Frames) -> list[bytes]:
    pixels = np.ascontiguousarray(frames.pixels)
    head = {"kind": frames.kind, "shape": pixels.shape, "seconds_per_grid": frames.seconds_per_grid}
    about = json.dumps(head).encode()
    content = pixels.tobytes()
    check = f"{zlib.crc32(content, zlib.crc32(about)):08x}\n".encode()
    return [_MAGIC, check, about, b"\n", content]


def _read(file: BinaryIO) -> Frames | None:
    """The frames of an entry; None if it is not whole."""
    if file.readline(len(_MAGIC)) != _MAGIC:
        return None
    check, about = file.readline(64), file.readline(4096)
    content = file.read()
    if check != f"{zlib.crc32(content, zlib.crc32(about[:-1])):08x}\n".encode():
        return None
    head = json.loads(about)
    return Frames(head["kind"], np.frombuffer(content, dtype=np.uint8).reshape(head["shape"]), head["seconds_per_grid"])


def _number(file: BinaryIO) -> int:
    digits = file.read(32)
    return int(digits) if digits.isdigit() else 0


def _write_number(file: BinaryIO, number: int) -> None:
    file.seek(0)
    file.write(b"%d" % number)
    file.truncate()
    file.flush()


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
