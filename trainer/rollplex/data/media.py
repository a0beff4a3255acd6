"""Where one medium of a dataset's row is: a file, or bytes in a parquet file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

Kind = Literal["image", "video"]

_DIGEST = 16  # bytes; as batch.Media's keys
# A larger file is known by its name, size and times: hashing would read all of a video of which few frames are decoded.
_HASHED_BYTES = 64 << 20


@dataclass(frozen=True)
class Cell:
    """Bytes in a parquet file. Equal bytes are equal cells, wherever they stand.

    ``row`` counts within its row group; ``index`` is the place in a list of media, None where the column holds one.
    """

    digest: str
    row_group: int = field(compare=False)
    row: int = field(compare=False)
    column: str = field(compare=False)
    index: int | None = field(compare=False)


@dataclass(frozen=True)
class MediaFile:
    """``path`` is absolute: the medium's own file, or the parquet file that has it in ``cell``."""

    kind: Kind
    path: str
    cell: Cell | None = None

    @property
    def name(self) -> str:
        """For a person who looks for it."""
        cell = self.cell
        if cell is None:
            return self.path
        index = "" if cell.index is None else f"[{cell.index}]"
        return f"{self.path} (row group {cell.row_group}, row {cell.row}, {cell.column}{index})"

    def content_key(self) -> str:
        """The same for the same content: a hash of the bytes; of name, size and times for a large file.

        Raises:
            OSError: the file cannot be read.
        """
        if self.cell is not None:
            return self.cell.digest
        path = Path(self.path)
        stat = path.stat()
        if stat.st_size > _HASHED_BYTES:
            # the change time too: no tool can set it, so contents that change in place never keep their key
            return digest_of(repr((self.path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)).encode())
        return digest_of(path.read_bytes())

    def source(self) -> str | BytesIO:
        """What PyAV and Pillow open: a path, or the bytes themselves."""
        if self.cell is None:
            return self.path
        from rollplex.data.parquet import value_of_cell

        cell = self.cell
        value = value_of_cell(self.path, cell.row_group, cell.row, cell.column)
        content = bytes_of(value if cell.index is None else value[cell.index])
        if content is None or digest_of(content) != cell.digest:
            raise ValueError("the parquet file was changed since the run began")
        return BytesIO(content)


def digest_of(content: bytes) -> str:
    """A hash of some bytes, as text."""
    return hashlib.blake2b(content, digest_size=_DIGEST).hexdigest()


def value_at(fields: Mapping[str, Any], name: str) -> Any:
    """The value of a column, whose dots reach into nested ones (a column whose own name has the dots goes first).

    Raises:
        KeyError: there is none; its argument says what the innermost part has instead.
    """
    if name in fields:
        return fields[name]
    outer, dot, inner = name.partition(".")
    if not dot or outer not in fields:
        raise KeyError(f"the row has {', '.join(fields) or 'no columns'}")
    value = fields[outer]
    if not isinstance(value, Mapping):
        raise KeyError(f"column {outer!r} is not nested; the row has {', '.join(fields)}")
    try:
        return value_at(value, inner)
    except KeyError as error:
        raise KeyError(str(error.args[0]).replace("the row has", f"{outer!r} has", 1)) from None


def bytes_of(entry: Any) -> bytes | None:
    """The content that a media column's entry carries itself, as bytes or as ``{"bytes": ..., "path": ...}``."""
    if isinstance(entry, Mapping):
        entry = entry.get("bytes")
    return entry if isinstance(entry, bytes) else None
