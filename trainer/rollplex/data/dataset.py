"""Reading a dataset: one row a prompt, every fault of the files found before anything starts.

Our own format is ``{"id", "messages", "answer", ...}``. A message's content is a text, or a list of parts
``{"type": "text", "text": ...}``, ``{"type": "image", "image": PATH}`` and ``{"type": "video", "video": PATH}``, with
paths relative to the file's folder. Other trainers' columns are mapped by :mod:`rollplex.data.columns`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollplex.api.errors import Fault, JobError
from rollplex.data.columns import PRESETS, Columns
from rollplex.data.media import Cell, Kind, MediaFile, bytes_of, digest_of, value_at
from rollplex.data.messages import Message, RowFaultError, chat, media_entries, structured
from rollplex.data.records import Record, dataset_files, records

log = logging.getLogger(__name__)

MEDIA_COLUMNS = ("image", "images", "video", "videos")
SHOWN = 5  # different faults that are listed; the rest is counted
ENOUGH = 1000  # faulty rows after which reading on would only take time
# A network file system answers one stat in about a millisecond: ask for several at once.
STAT_THREADS = 16


@dataclass(frozen=True)
class Row:
    """One prompt of a dataset.

    ``messages`` hold a part ``{"type": "image"}`` or ``{"type": "video"}`` where one of ``media`` stands, in order;
    ``fields`` is the row as it is in the file, with null for bytes: all rows are held in memory, and rewards get them.
    """

    id: str
    messages: tuple[Message, ...]
    media: tuple[MediaFile, ...]
    answer: Any
    fields: Mapping[str, Any]

    @property
    def modality(self) -> str:
        """video, image, both ("image+video") or text."""
        return "+".join(sorted({file.kind for file in self.media})) or "text"


def read_rows(path: str | Path, where: str, columns: Columns = PRESETS["rollplex"]) -> list[Row]:
    """All rows of a file, or of a folder's files in the order of their names.

    Args:
        path: the .jsonl, .json or .parquet file, or a folder of one kind of them.
        where: the job's field that names it, for errors (``spec.data.train``).
        columns: what the columns are called.

    Raises:
        JobError: file, column or media file missing, a row that cannot be understood, equal ids, or no row at all.
    """
    path = Path(path)
    rows: list[Row] = []
    places: list[tuple[Path, int]] = []  # of each row: the file, and the line or row in it
    faults: list[tuple[str, str]] = []  # where in the files, what
    for file in dataset_files(path, where):
        for record in records(file, where):
            try:
                rows.append(_row(record, columns))
                places.append((file, record.number))
            except RowFaultError as fault:
                faults.append((_at((file, record.number)), str(fault)))
                if len(faults) == ENOUGH:
                    raise _error(faults, where) from None
    if faults := faults or _equal_ids(rows, places) or _missing_files(rows, places):
        raise _error(faults, where)
    if not rows:
        raise JobError.at(where, f"{path} has no rows")
    modalities = Counter(row.modality for row in rows)
    log.info("%s: %d rows (%s)", path, len(rows), ", ".join(f"{n} {kind}" for kind, n in sorted(modalities.items())))
    return rows


def _error(faults: Sequence[tuple[str, str]], where: str) -> JobError:
    """A line for each different fault, at the row that shows it first."""
    first: dict[str, str] = {}
    for at, what in faults:
        first.setdefault(what, at)
    times = Counter(what for _, what in faults)
    more = "at least " if len(faults) == ENOUGH else ""
    lines = [
        f"{at}{what}" + (f" (and so have {more}{times[what] - 1} more rows)" if times[what] > 1 else "")
        for what, at in list(first.items())[:SHOWN]
    ]
    if len(first) > SHOWN:
        lines.append(f"and {more}{len(first) - SHOWN} more faults of this kind")
    return JobError([Fault(where, line) for line in lines])


def _row(record: Record, columns: Columns) -> Row:
    if record.fault:
        raise RowFaultError(record.fault)
    fields, ours = record.fields, columns.markers == "never"
    column, prompt = _required(fields, columns.prompt)
    messages = chat(prompt, column, lenient=not ours)
    answer = _required(fields, columns.answer)[1] if columns.answer else None
    taken: dict[Kind, tuple[str, list[MediaFile]] | None] = {
        "image": _taken(record, "image", columns.images),
        "video": _taken(record, "video", columns.videos),
    }
    parts, media = structured(
        messages,
        column,
        {kind: found and found[1] for kind, found in taken.items()},
        columns.markers,
        lambda kind, path: _file(record, kind, path, column, None),
    )
    unused = [name for name in MEDIA_COLUMNS if fields.get(name)] if ours and not media else []
    if unused:
        raise RowFaultError(
            f"column {unused[0]!r} holds media, but no message has a part for it; "
            'put {"type": "video", "video": PATH} or {"type": "image", "image": PATH} into its content'
        )
    named = _optional(fields, columns.id)
    row_id = f"{record.file.stem}:{record.number}" if named is None else str(named[1])
    return Row(row_id, parts, media, answer, _without_bytes(fields))


def _optional(fields: Mapping[str, Any], names: Sequence[str]) -> tuple[str, Any] | None:
    """The first of some alternative columns that the row has a value in."""
    for name in names:
        try:
            value = value_at(fields, name)
        except KeyError:
            continue
        if value is not None:
            return name, value
    return None


def _required(fields: Mapping[str, Any], names: Sequence[str]) -> tuple[str, Any]:
    found = _optional(fields, names)
    if found is not None:
        return found
    wanted = " or ".join(repr(name) for name in names)
    has = []
    for name in names:
        try:
            value_at(fields, name)
        except KeyError as error:
            has.append(str(error.args[0]))
        else:
            raise RowFaultError(f"column {name!r} is null")
    raise RowFaultError(f"column {wanted} is missing; {'; '.join(dict.fromkeys(has))}")


def _taken(record: Record, kind: Kind, names: Sequence[str]) -> tuple[str, list[MediaFile]] | None:
    """The row's media column of a kind: its name and its media; None without one."""
    found = _optional(record.fields, names)
    if found is None:
        return None
    column, value = found
    return column, [_file(record, kind, entry, column, index) for index, entry in media_entries(value)]


def _file(record: Record, kind: Kind, entry: Any, column: str, index: int | None) -> MediaFile:
    """A medium that is given by path, as bytes, or as a mapping with either (as Hugging Face, verl and Qwen write)."""
    at = f"column {column!r}" if index is None else f"column {column!r}[{index}]"
    content = bytes_of(entry)
    if content is not None and record.place is not None:
        group, row = record.place
        path = str(record.file.absolute())
        return MediaFile(kind, path, Cell(digest_of(content), group, row, column, index))
    given = entry
    if isinstance(entry, Mapping):
        given = next((entry[key] for key in ("path", kind) if entry.get(key) is not None), None)
    if not isinstance(given, str) or not given:
        has = f"a mapping with {', '.join(entry)}" if isinstance(entry, Mapping) else f"a {type(given).__name__}"
        raise RowFaultError(f"{at} must give a {kind} by path, or as bytes in a parquet file; it is {has}")
    if given.startswith(("http://", "https://", "data:")):
        raise RowFaultError(f"{at} is not a local file ({given[:40]}); download it and give its path")
    return MediaFile(kind, str(record.file.parent.absolute() / given.removeprefix("file://")))


def _without_bytes(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_bytes(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_bytes(item) for item in value]
    return None if isinstance(value, bytes) else value


def _equal_ids(rows: Sequence[Row], places: Sequence[tuple[Path, int]]) -> list[tuple[str, str]]:
    first: dict[str, tuple[Path, int]] = {}
    faults = []
    for row, place in zip(rows, places, strict=True):
        before = first.setdefault(row.id, place)
        if before is not place:
            other = f"{before[0].name}:{before[1]}"
            faults.append((_at(place), f"id {row.id!r} is that of {other} too; ids must differ"))
    return faults


def _missing_files(rows: Sequence[Row], places: Sequence[tuple[Path, int]]) -> list[tuple[str, str]]:
    first: dict[str, int] = {}  # by path, the row
    for index, row in enumerate(rows):
        for file in row.media:
            if file.cell is None:
                first.setdefault(file.path, index)
    with ThreadPoolExecutor(STAT_THREADS) as pool:
        exist = pool.map(lambda path: Path(path).exists(), first)
        missing = [path for path, exists in zip(first, exist, strict=True) if not exists]
    return [
        (_at(places[first[path]]), f"row {rows[first[path]].id}: media file {path} does not exist") for path in missing
    ]


def _at(place: tuple[Path, int]) -> str:
    return f"{place[0]}:{place[1]}: "
