"""Files that outlive a crash: written whole, hashed on the way, on the disk before anything names them.

Every step is one call of :mod:`os`, so that a test can end the process between any two of them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_CHUNK = 4 << 20  # bytes hashed and written at once


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
