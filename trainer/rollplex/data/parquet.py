"""Parquet files: all rows one after the other, and one value again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyarrow import ArrowException, parquet  # type: ignore[import-untyped, unused-ignore]

from rollplex.data.media import value_at

_ROWS = 64  # turned into Python objects at a time: they may hold whole videos


def rows(file: Path) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """(row group, row in it, its columns) of all rows; raises OSError."""
    try:
        with parquet.ParquetFile(file) as opened:
            for group in range(opened.num_row_groups):
                row = 0
                for batch in opened.iter_batches(_ROWS, row_groups=[group]):
                    for fields in batch.to_pylist():
                        yield group, row, fields
                        row += 1
    except ArrowException as error:
        raise OSError(str(error).partition("\n")[0]) from None


def value_of_cell(path: str, row_group: int, row: int, column: str) -> Any:
    """One value; ``column`` as in :func:`rollplex.data.media.value_at`. Its column of the row group is read for it."""
    with parquet.ParquetFile(path) as opened:
        names = opened.schema_arrow.names
        table = opened.read_row_group(row_group, columns=[column if column in names else column.partition(".")[0]])
    return value_at(table.slice(row, 1).to_pylist()[0], column)
