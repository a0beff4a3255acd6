"""Reading our JSONL: one row a line, every fault of the file found before anything starts.

A row is ``{"id", "messages", "answer", ...}``. A message's content is a text, or a list of parts
``{"type": "text", "text": ...}``, ``{"type": "image", "image": PATH}`` and ``{"type": "video", "video": PATH}``, with
paths relative to the JSONL's folder. ``id`` may be left out; all further columns are handed to rewards as they are.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rollplex.api.errors import Fault, JobError

log = logging.getLogger(__name__)

MEDIA_COLUMNS = ("image", "images", "video", "videos")
SHOWN = 5  # faults of one kind of file that are listed; the rest is counted
# A network file system answers one stat in about a millisecond: ask for several at once.
STAT_THREADS = 16


@dataclass(frozen=True)
class MediaFile:
    """Where one medium of a row is; ``path`` is absolute."""

    kind: Literal["image", "video"]
    path: str


@dataclass(frozen=True)
class Row:
    """One prompt of a dataset; ``fields`` is the row as it stands in the file."""

    id: str
    messages: tuple[Mapping[str, Any], ...]
    media: tuple[MediaFile, ...]
    answer: Any
    fields: Mapping[str, Any]

    @property
    def modality(self) -> str:
        """video, image, both ("image+video") or text."""
        return "+".join(sorted({file.kind for file in self.media})) or "text"


class _RowFaultError(ValueError):
    pass


def read_rows(path: str | Path, where: str) -> list[Row]:
    """All rows of a JSONL file, or of the ``*.jsonl`` of a folder in the order of their names.

    Args:
        path: the file or the folder.
        where: the job's field that names it, for errors (``spec.data.train``).

    Raises:
        JobError: file, column or media file missing, a line that is not JSON, equal ids, or no row at all.
    """
    path = Path(path)
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not path.exists():
        raise JobError.at(where, f"{path} does not exist")
    if not files:
        raise JobError.at(where, f"folder {path} has no *.jsonl file")
    rows: list[Row] = []
    faults: list[str] = []
    for file in files:
        for number, line in _lines(file, where):
            try:
                rows.append(_row(line, file, number))
            except _RowFaultError as fault:
                faults.append(f"{file}:{number}: {fault}")
    faults = faults or _equal_ids(rows) or _missing_files(rows)
    if faults:
        listed = [Fault(where, fault) for fault in faults[:SHOWN]]
        if len(faults) > SHOWN:
            listed.append(Fault(where, f"and {len(faults) - SHOWN} more faults of this kind"))
        raise JobError(listed)
    if not rows:
        raise JobError.at(where, f"{path} has no rows")
    modalities = Counter(row.modality for row in rows)
    log.info("%s: %d rows (%s)", path, len(rows), ", ".join(f"{n} {kind}" for kind, n in sorted(modalities.items())))
    return rows


def _lines(file: Path, where: str) -> Iterator[tuple[int, str]]:
    try:
        with file.open(encoding="utf-8") as stream:
            for number, line in enumerate(stream, start=1):
                if line.strip():
                    yield number, line
    except (OSError, UnicodeDecodeError) as error:
        raise JobError.at(where, f"{file} cannot be read: {error}") from None


def _row(line: str, file: Path, number: int) -> Row:
    try:
        fields = json.loads(line)
    except json.JSONDecodeError as error:
        raise _RowFaultError(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise _RowFaultError("a row must be a JSON object")
    for column in ("messages", "answer"):
        if fields.get(column) is None:
            raise _RowFaultError(f"column {column!r} is missing; the row has {', '.join(fields) or 'no columns'}")
    messages = fields["messages"]
    if not isinstance(messages, list) or not messages:
        raise _RowFaultError("column 'messages' must be a list of messages that is not empty")
    media = [file for index, message in enumerate(messages) for file in _media(message, f"messages[{index}]")]
    unused = [column for column in MEDIA_COLUMNS if fields.get(column)]
    if unused and not media:
        raise _RowFaultError(
            f"column {unused[0]!r} holds media, but no message has a part for it; "
            'put {"type": "video", "video": PATH} or {"type": "image", "image": PATH} into its content'
        )
    resolved = tuple(MediaFile(item.kind, str(file.parent.absolute() / item.path)) for item in media)
    return Row(str(fields.get("id", f"{file.stem}:{number}")), tuple(messages), resolved, fields["answer"], fields)


def _media(message: Any, at: str) -> list[MediaFile]:
    """The media parts of one message, all of whose parts are checked."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str) or "content" not in message:
        raise _RowFaultError(f"{at} must be an object with 'role' and 'content'")
    content = message["content"]
    if isinstance(content, str):
        return []
    if not isinstance(content, list):
        raise _RowFaultError(f"{at}.content must be a text or a list of parts")
    media = []
    for index, part in enumerate(content):
        here = f"{at}.content[{index}]"
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in ("text", "image", "video"):
            raise _RowFaultError(f"{here} has type {kind!r}; known: text, image, video")
        if not isinstance(part.get(kind), str) or (kind != "text" and not part[kind]):
            raise _RowFaultError(f"{here} is of type {kind!r} but has no column {kind!r}; it has {', '.join(part)}")
        if kind != "text":
            media.append(MediaFile(kind, part[kind]))
    return media


def _equal_ids(rows: Sequence[Row]) -> list[str]:
    counts = Counter(row.id for row in rows)
    return [f"id {row_id!r} is given to {count} rows; ids must differ" for row_id, count in counts.items() if count > 1]


def _missing_files(rows: Sequence[Row]) -> list[str]:
    first_row: dict[str, str] = {}
    for row in rows:
        for file in row.media:
            first_row.setdefault(file.path, row.id)
    with ThreadPoolExecutor(STAT_THREADS) as pool:
        exist = pool.map(lambda path: Path(path).exists(), first_row)
        missing = [path for path, exists in zip(first_row, exist, strict=True) if not exists]
    return [f"row {first_row[path]}: media file {path} does not exist" for path in missing]
