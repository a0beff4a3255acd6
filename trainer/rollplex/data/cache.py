"""Decoded media on disk: frames at their final size, found again by the content they were made from.

What is kept is bytes of pixels; patches follow from them by a table look-up, and would take four times the space. Many
processes share one folder. An entry is written aside and renamed, so it is there as a whole or not at all; one that
does not match its checksum is a miss and goes. ``size`` holds the bytes of all; whoever adds one has locked ``lock``.
Where one does not fit, ``full`` says how large it was, and the next :meth:`FrameCache.tidy` makes room. That lists the
whole folder, which may take long; a decoder has a time limit, and must not pass it for the cache's sake.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
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
# Nothing else in the folder is ever deleted: a user may name one that holds other things.
_ENTRY = re.compile("[0-9a-f]{40}")
_ASIDE = ".rollplex-"
_ABANDONED_SECONDS = 3600.0  # a file that its writer, killed, will not rename
_LOCK_SECONDS = 0.5
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
        """Keep the frames, if there is room."""
        content = _written(frames)
        size = sum(map(len, content))
        path = self._entry(key)
        with contextlib.suppress(OSError):
            if size > self.max_bytes or not self._fits(_number(self.folder / "size"), size):
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, aside = tempfile.mkstemp(prefix=_ASIDE, dir=path.parent)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.writelines(content)
                with self._locked():
                    used = _number(self.folder / "size")
                    if path.exists() or not self._fits(used, size):
                        return
                    # counted first: a kill in between leaves the count too high, and the next tidying sets it right
                    self._write_size(used + size)
                    os.replace(aside, path)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(aside)

    def tidy(self) -> None:
        """Make room if an entry did not fit: delete what was not used for longest. Else this costs nothing."""
        with contextlib.suppress(OSError):
            if not (self.folder / "full").exists():
                return
            with self._locked():
                wanted = _number(self.folder / "full")
                left = self._make_room(min(int(self.max_bytes * _ROOM), self.max_bytes - wanted))
                self._write_size(left)
                (self.folder / "full").unlink(missing_ok=True)

    def _entry(self, key: str) -> Path:
        return self.folder / key[:2] / key

    def _write_size(self, used: int) -> None:
        aside = self.folder / "size.new"
        aside.write_text(str(used))
        aside.replace(self.folder / "size")

    def _fits(self, used: int, size: int) -> bool:
        if used + size <= self.max_bytes:
            return True
        (self.folder / "full").write_text(str(size))
        return False

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """The folder for oneself; raises BlockingIOError if another keeps it for longer than an entry takes."""
        with os.fdopen(os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o666), "r+b") as file:
            until = time.monotonic() + _LOCK_SECONDS
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # goes with the process, however it ends
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        raise
                    time.sleep(0.002)
            yield

    def _make_room(self, most: int) -> int:
        """Delete what was used longest ago until all entries take at most ``most`` bytes; returns what they take."""
        entries = []
        for shelf in os.scandir(self.folder):
            for item in os.scandir(shelf) if len(shelf.name) == 2 and shelf.is_dir() else ():
                with contextlib.suppress(FileNotFoundError):
                    stat = item.stat()
                    if _ENTRY.fullmatch(item.name):
                        entries.append((stat.st_mtime_ns, stat.st_size, item.path))
                    elif item.name.startswith(_ASIDE) and stat.st_mtime < time.time() - _ABANDONED_SECONDS:
                        os.unlink(item.path)
        left = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if left <= most:
                break
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            left -= size
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


def _number(path: Path) -> int:
    try:
        return int(path.read_text() or 0)
    except (FileNotFoundError, ValueError):
        return 0
