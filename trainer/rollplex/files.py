"""Files that outlive a crash: written whole, hashed on the way, on the disk before anything names them.

Every step is one call of :mod:`os`, so that a test can end the process between any two of them.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_CHUNK = 4 << 20  # bytes hashed and written at once
_PROBE_BYTES = 1 << 16
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, slots=True)
class FileRecord:
    """What a file must be: ``bytes`` long, with this BLAKE2b hash (32 bytes, in hex)."""

    name: str
    bytes: int
    blake2b: str


def write_file(path: Path, parts: Iterable[bytes | memoryview]) -> FileRecord:
    """Write a new file and wait until it is on the disk. Raises OSError; FileExistsError where it is there already."""
    digest = hashlib.blake2b(digest_size=32)
    size = 0
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        for part in parts:
            for at in range(0, len(part), _CHUNK):
                rest = memoryview(part)[at : at + _CHUNK]
                digest.update(rest)
                size += len(rest)
                while rest:
                    rest = rest[os.write(handle, rest) :]
        os.fsync(handle)
    finally:
        os.close(handle)
    return FileRecord(path.name, size, digest.hexdigest())


def record_of(path: Path) -> FileRecord:
    """The record of a file as it is now."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32))
        return FileRecord(path.name, file.tell(), digest.hexdigest())


def sync_folder(path: Path) -> None:
    """Wait until a folder's entries are on the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def rename_durably(source: Path, target: Path) -> None:
    """Rename within one parent folder, and wait until that is on the disk."""
    os.rename(source, target)
    sync_folder(target.parent)


def remove_folder(path: Path) -> None:
    """Remove a folder of plain files."""
    for file in sorted(os.listdir(path)):
        os.unlink(path / file)
    os.rmdir(path)


def refuse_unwritable(folder: Path) -> None:
    """Raise OSError where nothing can be written into a folder, which may be missing.

    Tried rather than asked: permissions say nothing of a disk that is full or read-only. The small file goes again, and
    so do the folders that had to be made for it.
    """
    missing: list[Path] = []
    at = folder
    while not at.exists():
        missing.append(at)
        at = at.parent
    made: list[Path] = []
    try:
        for path in reversed(missing):
            os.mkdir(path)
            made.append(path)
        probe = folder / f".probe-{os.getpid()}"
        try:
            write_file(probe, [bytes(_PROBE_BYTES)])
        finally:
            probe.unlink(missing_ok=True)
    finally:
        for path in reversed(made):
            os.rmdir(path)


def reason(error: OSError, folder: Path, needed: int | None = None) -> str:
    """Why a folder cannot be written, in words; where there is no room, the bytes that are free and ``needed``."""
    said = error.strerror or str(error)
    if error.errno not in _NO_ROOM:
        return said
    while not folder.exists():
        folder = folder.parent
    free = f"{shutil.disk_usage(folder).free:,} bytes are free"
    return f"{said}; {free}" if needed is None else f"{said}; {needed:,} bytes are needed, {free}"
