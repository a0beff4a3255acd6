"""Where a step's metrics go: metrics.jsonl always, TensorBoard by the job's choice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from rollplex.telemetry.keys import Value, finite_or_none


class Tracker(Protocol):
    """Takes one row a step; ``metrics`` are in the order of the documented table."""

    def write(self, step: int, metrics: Mapping[str, Value]) -> None: ...

    def close(self) -> None: ...


class JsonlTracker:
    """One JSON object a line, on disk before ``write`` returns control (line-buffered); non-finite values are null."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)

    def write(self, step: int, metrics: Mapping[str, Value]) -> None:
        row = {name: finite_or_none(value) for name, value in metrics.items()}
        self._file.write(json.dumps(row, allow_nan=False) + "\n")

    def close(self) -> None:
        self._file.close()


class TensorBoardTracker:
    """Scalars under the same names as in metrics.jsonl; words are left out, non-finite values shown as such.

    ``after``: the step after which a resumed run goes on; what earlier events say of later steps is hidden.
    """

    def __init__(self, folder: Path, after: int | None = None) -> None:
        # Imported here: it takes seconds, and `rollplex validate` or a job without TensorBoard must not pay for it.
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder), flush_secs=10, purge_step=None if after is None else after + 1)

    def write(self, step: int, metrics: Mapping[str, Value]) -> None:
        for name, value in metrics.items():
            if name != "step" and not isinstance(value, str):
                self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()
