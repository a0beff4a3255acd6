"""Rows of dataset files as plain dictionaries: JSONL, JSON and parquet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollplex.api.errors import JobError

SUFFIXES = (".jsonl", ".json", ".parquet")


@dataclass(frozen=True)
class Record:
    """One row as it stands in its file, or why it cannot be read.

    ``number`` is the line of a JSONL file, else the row, from 1. ``place`` is (row group, row in it) in parquet.
    """

    file: Path
    number: int
    fields: dict[str, Any]
    fault: str = ""
    place: tuple[int, int] | None = None


def dataset_files(path: Path, where: str) -> list[Path]:
    """The file, or those of a folder in the order of their names; raises JobError naming ``where``."""
    if not path.exists():
        raise JobError.at(where, f"{path} does not exist")
    if not path.is_dir():
        if path.suffix not in SUFFIXES:
            raise JobError.at(where, f"{path} is of no known kind; a set is a {', '.join(SUFFIXES)} file")
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES and file.is_file())
    if not files:
        raise JobError.at(where, f"folder {path} has no {', '.join('*' + suffix for suffix in SUFFIXES)} file")
    kinds = {file.suffix for file in files}
    if len(kinds) > 1:
        raise JobError.at(where, f"folder {path} mixes {' and '.join(sorted(kinds))} files; name the one file to read")
    return files


def records(file: Path, where: str) -> Iterator[Record]:
    """All rows of a file; raises JobError naming ``where`` if the file itself cannot be read."""
    try:
        if file.suffix == ".parquet":
            yield from _parquet(file)
        elif file.suffix == ".json" and file.read_text(encoding="utf-8").lstrip().startswith("["):
            yield from _json_list(file)
        else:
            yield from _lines(file)
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise JobError.at(where, f"{file} cannot be read: {error}") from None


def _lines(file: Path) -> Iterator[Record]:
    with file.open(encoding="utf-8") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            try:
                yield _checked(file, number, json.loads(line))
            except json.JSONDecodeError as error:
                yield Record(file, number, {}, f"not JSON: {error}")


def _json_list(file: Path) -> Iterator[Record]:
    for number, fields in enumerate(json.loads(file.read_text(encoding="utf-8")), start=1):
        yield _checked(file, number, fields)


def _checked(file: Path, number: int, fields: Any) -> Record:
    if not isinstance(fields, dict):
        return Record(file, number, {}, "a row must be a JSON object")
    return Record(file, number, fields)


def _parquet(file: Path) -> Iterator[Record]:
    from rollplex.data.parquet import rows

    for number, (group, row, fields) in enumerate(rows(file), start=1):
        yield Record(file, number, fields, place=(group, row))
