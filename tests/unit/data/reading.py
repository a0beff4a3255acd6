"""A reader that closes itself, and what a loader serves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rollplex.api.data import DataSpec
from rollplex.data.loader import Loader
from rollplex.data.reader import Reader


@contextmanager
def reading(model_folder: Path, **data: Any) -> Iterator[Reader]:
    settings: dict[str, Any] = {"train": "-", "workers": 2} | data
    reader = Reader(model_folder, DataSpec(**settings))
    try:
        yield reader
    finally:
        reader.close()


def ids(loader: Loader, steps: range) -> list[list[str]]:
    return [[prompt.id for prompt in loader.batch(step).prompts] for step in steps]
