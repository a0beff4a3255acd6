"""The run folder: everything a run leaves behind, under one name.

job.yaml        the resolved job
metrics.jsonl   one object a step (docs/metrics-jsonl.md)
tensorboard/    the same as TensorBoard scalars
wandb/          the same for Weights & Biases, if the job asks for it
timeline.jsonl  one line a step: who ran when
trace.json      the last steps for ui.perfetto.dev, rewritten every few steps and at the end
lanes.png       the last step as a picture, written at the end
rollouts/       the responses of each step, which ``rollout.replay`` can feed back
nonfinite/      those of steps whose loss or gradient was not finite
checkpoints/    the run's state (rollplex.checkpoint), unless the job puts it elsewhere
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self, SupportsFloat

import yaml

from rollplex.api.output import WandbSpec
from rollplex.telemetry.events import StepTimeline
from rollplex.telemetry.history import cut_lines, cut_rollouts
from rollplex.telemetry.keys import Value, row
from rollplex.telemetry.lanes import draw_lanes
from rollplex.telemetry.trace import chrome_trace
from rollplex.telemetry.tracker import JsonlTracker, TensorBoardTracker, Tracker, WandbTracker

log = logging.getLogger(__name__)

TRACE_STEPS = 3
TRACE_EVERY_STEPS = 10


class RunFolder:
    """The open folder of a running job, from :meth:`create` or :meth:`resume`; a context manager that closes itself."""

    def __init__(self, path: Path, lock: IO[bytes], trackers: list[Tracker]) -> None:
        self.path = path
        self.rollouts = path / "rollouts"
        self.nonfinite = path / "nonfinite"
        self._lock = lock
        self._trackers = trackers
        self._timelines = (path / "timeline.jsonl").open("a", buffering=1)
        self._recent: deque[StepTimeline] = deque(maxlen=TRACE_STEPS)
        self._last: dict[str, Value] = {}

    @classmethod
    def create(
        cls,
        path: Path,
        job: str,
        *,
        tensorboard: bool = True,
        wandb: WandbSpec | None = None,
        checkpoints: Path | None = None,
        say: Callable[[str], object],
    ) -> RunFolder:
        """Make the folder of a run that starts anew.

        A folder that holds anything is moved aside as ``<name>.old-N``, never deleted, and so are earlier checkpoints
        where they lie elsewhere; ``say`` gets the one line that tells so. ``job`` is the text of the resolved job.

        Raises:
            ValueError: a running trainer still writes to it.
        """
        outside = sorted(checkpoints.glob("*step-*")) if checkpoints and path not in checkpoints.parents else []
        if outside or (path.exists() and (not path.is_dir() or any(path.iterdir()))):
            refuse_running(path)
            aside = _free_name(path)
            if path.exists():
                path.rename(aside)
            for entry in outside:
                (aside / "checkpoints").mkdir(parents=True, exist_ok=True)
                entry.rename(aside / "checkpoints" / entry.name)
            say(f"{path} holds an earlier run: moved aside to {aside}")
        path.mkdir(parents=True, exist_ok=True)
        return cls._open(path, job, tensorboard, wandb, None)

    @classmethod
    def resume(
        cls, path: Path, job: str, step: int, *, tensorboard: bool = True, wandb: WandbSpec | None = None
    ) -> RunFolder:
        """Open the folder of a run that goes on after ``step``; what was recorded past it is taken out.

        Raises:
            ValueError: a running trainer still writes to it.
        """
        path.mkdir(parents=True, exist_ok=True)
        return cls._open(path, job, tensorboard, wandb, step)

    @classmethod
    def _open(cls, path: Path, job: str, tensorboard: bool, wandb: WandbSpec | None, after: int | None) -> RunFolder:
        lock = (path / ".lock").open("ab")
        if not _try_lock(lock):
            raise ValueError(_RUNNING.format(path))
        (path / "rollouts").mkdir(exist_ok=True)
        (path / "job.yaml").write_text(job)
        if after is not None:
            for name in ("metrics.jsonl", "timeline.jsonl"):
                cut_lines(path / name, after)
            for name in ("rollouts", "nonfinite"):
                cut_rollouts(path / name, after)
        trackers: list[Tracker] = [JsonlTracker(path / "metrics.jsonl")]
        if tensorboard:
            trackers.append(TensorBoardTracker(path / "tensorboard", after))
        if wandb is not None:
            trackers.append(WandbTracker(path, wandb, yaml.safe_load(job), after))
        return cls(path, lock, trackers)

    def sync(self) -> None:
        """Wait until what was recorded so far is on the disk: a checkpoint's history must not be younger than it."""
        for name in ("metrics.jsonl", "timeline.jsonl"):
            with (self.path / name).open("rb") as file:
                os.fsync(file.fileno())

    def write_step(self, metrics: Mapping[str, SupportsFloat | str | None], timeline: StepTimeline) -> dict[str, Value]:
        """Append one step everywhere and return its row as written, in the documented order.

        Raises:
            ValueError: an undocumented name, or metrics and timeline of different steps; nothing is written then.
        """
        values = row(metrics)
        if values["step"] != timeline.step:
            raise ValueError(f"metrics are of step {values['step']}, the timeline of step {timeline.step}")
        for tracker in self._trackers:
            tracker.write(timeline.step, values)
        self._timelines.write(timeline.to_json() + "\n")
        self._recent.append(timeline)
        self._last = values
        if timeline.step % TRACE_EVERY_STEPS == 0:
            self._write_trace()
        return values

    def complete_step(self, step: int, metrics: Mapping[str, SupportsFloat | str | None]) -> None:
        """Add to the row of the last step what was measured after it was written.

        Raises:
            ValueError: an undocumented name.
        """
        values = row({"step": step, **metrics})
        for tracker in self._trackers:
            tracker.complete(step, values)

    def close(self) -> None:
        """Write the trace and the picture of what ran last, and close every file.

        A disk that takes no more costs a warning: what counts was on it before, or somebody has said so.
        """
        pictures = [self._write_trace, self._draw] if self._recent else []
        closing = [tracker.close for tracker in self._trackers]
        for act in (*pictures, *closing, self._timelines.close, self._lock.close):
            try:
                act()
            except OSError as error:
                log.warning("%s: not all could be written at the end: %s", self.path, error.strerror or error)

    def _draw(self) -> None:
        draw_lanes(self._recent[-1], self._last, self.path / "lanes.png")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write_trace(self) -> None:
        whole = self.path / "trace.json"
        part = self.path / "trace.json.part"
        part.write_text(chrome_trace(tuple(self._recent)))
        os.replace(part, whole)


def _free_name(path: Path) -> Path:
    taken = [sibling.name.rpartition("-")[2] for sibling in path.parent.glob(f"{path.name}.old-*")]
    number = 1 + max((int(text) for text in taken if text.isdecimal()), default=0)
    return path.with_name(f"{path.name}.old-{number}")


_RUNNING = "{} belongs to a run that is still going: stop it, or pass --name for another folder"


def refuse_running(path: Path) -> None:
    """Raise ValueError where a trainer that is alive writes to the folder: two would spoil each other's files."""
    try:
        lock = (path / ".lock").open("r+b")
    except (FileNotFoundError, NotADirectoryError):
        return
    with lock:
        if not _try_lock(lock):
            raise ValueError(_RUNNING.format(path))


def _try_lock(file: IO[bytes]) -> bool:
    """Lock for this process; False if another has it.

    A POSIX record lock goes with its process, however it dies, and forked workers do not hold it. A file system that
    knows no locks counts as free.
    """
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        return True
    return True
