"""Where a step's metrics go: metrics.jsonl always, TensorBoard and Weights & Biases by the job's choice."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from rollplex.api.errors import JobError
from rollplex.api.output import TrackingSpec, WandbSpec
from rollplex.telemetry.keys import Value, finite_or_none


class Tracker(Protocol):
    """Takes one row a step; ``metrics`` are in the order of the documented table.

    ``complete`` adds to the last row what was measured later; ``metrics`` hold the step and that alone.
    """

    def write(self, step: int, metrics: Mapping[str, Value]) -> None: ...

    def complete(self, step: int, metrics: Mapping[str, Value]) -> None: ...

    def close(self) -> None: ...


class JsonlTracker:
    """One JSON object a line, on disk before ``write`` returns control (line-buffered); non-finite values are null."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("a", buffering=1)

    def write(self, step: int, metrics: Mapping[str, Value]) -> None:
        self._file.write(_line(metrics))

    def complete(self, step: int, metrics: Mapping[str, Value]) -> None:
        """The file is replaced as a whole: killed at any moment, it is the old one or the new one."""
        part = self._path.with_name(f"{self._path.name}.part")
        with self._path.open() as lines, part.open("w") as kept:
            for line in lines:
                known = json.loads(line)
                kept.write(_line(known | metrics) if known["step"] == step else line)
        self._file.close()
        os.replace(part, self._path)
        self._file = self._path.open("a", buffering=1)

    def close(self) -> None:
        self._file.close()


def _line(metrics: Mapping[str, Value | None]) -> str:
    plain = {name: None if value is None else finite_or_none(value) for name, value in metrics.items()}
    return json.dumps(plain, allow_nan=False) + "\n"


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

    def complete(self, step: int, metrics: Mapping[str, Value]) -> None:
        self.write(step, metrics)

    def close(self) -> None:
        self._writer.close()


class WandbTracker:
    """The same rows in Weights & Biases; offline they go into ``wandb/`` of the run folder, for ``wandb sync``.

    A run that resumes goes on under its id, which ``wandb/run-id`` keeps; steps that it repeats are there twice.

    Args:
        folder: the run folder, after whose name the run is called.
        spec: project and mode.
        job: the resolved job, as plain data.
        after: the step after which a resumed run goes on; None for a new run.

    Raises:
        JobError: Weights & Biases does not take the run (no key, no connection, no such project).
    """

    def __init__(self, folder: Path, spec: WandbSpec, job: Mapping[str, Any], after: int | None = None) -> None:
        # our own lines are all that a run prints, and vLLM's import of openai is no reason to advertise another product
        os.environ.setdefault("WANDB_SILENT", "true")
        os.environ.setdefault("WANDB_DISABLE_WEAVE", "true")
        import wandb  # not a dependency: see refuse_missing

        home = folder / "wandb"
        home.mkdir(exist_ok=True)
        kept = home / "run-id"
        if after is None or not kept.is_file():
            kept.write_text(secrets.token_hex(8))
        try:
            self._run = wandb.init(
                project=spec.project,
                mode=spec.mode,
                # a run beside its checkpoints is PATH/run
                name=folder.resolve().parent.name if folder.name == "run" else folder.name,
                id=kept.read_text(),
                resume="allow",
                dir=str(folder),
                config=dict(job),
                settings=wandb.Settings(console="off"),
            )
        except wandb.errors.Error as error:
            reason = str(error).strip().partition("\n")[0]
            raise JobError.at(_WANDB, f"{reason}; set WANDB_API_KEY, or use mode: offline") from None
        self._run.define_metric("*", step_metric="step")

    def write(self, step: int, metrics: Mapping[str, Value]) -> None:
        self._run.log({**metrics, "step": step})

    def complete(self, step: int, metrics: Mapping[str, Value]) -> None:
        self.write(step, metrics)

    def close(self) -> None:
        self._run.finish()


_WANDB = "spec.tracking.wandb"


def refuse_missing(spec: TrackingSpec) -> None:
    """Raise JobError where a tracker is wanted that is not installed, before a run has cost anything."""
    if spec.wandb is None:
        return
    found = find_spec("wandb")
    if found is None or found.origin is None:  # a folder of that name, as offline runs leave it, is no package
        raise JobError.at(_WANDB, "the package wandb is not installed: pip install 'wandb>=0.31', or leave wandb out")
