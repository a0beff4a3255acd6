"""The run folder: everything a run leaves behind, under one name.

job.yaml        the resolved job
metrics.jsonl   one object a step (docs/metrics-jsonl.md)
tensorboard/    the same as TensorBoard scalars
timeline.jsonl  one line a step: who ran when
trace.json      the last steps for ui.perfetto.dev, rewritten every few steps and at the end
lanes.png       the last step as a picture, written at the end
rollouts/       the responses of each step, which ``rollout.replay`` can feed back
"""

from __future__ import annotations

import fcntl
import os
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self, SupportsFloat

from rollplex.telemetry.events import StepTimeline
from rollplex.telemetry.keys import Value, row
from rollplex.telemetry.lanes import draw_lanes
from rollplex.telemetry.trace import chrome_trace
from rollplex.telemetry.tracker import JsonlTracker, TensorBoardTracker, Tracker

TRACE_STEPS = 3
TRACE_EVERY_STEPS = 10


class RunFolder:
    """The open folder of a running job; made by :meth:`create`, a context manager that closes itself."""

    def __init__(self, path: Path, lock: IO[bytes], trackers: list[Tracker]) -> None:
        self.path = path
        self.rollouts = path / "rollouts"
        self._lock = lock
        self._trackers = trackers
        self._timelines = (path / "timeline.jsonl").open("a", buffering=1)
        self._recent: deque[StepTimeline] = deque(maxlen=TRACE_STEPS)
        self._last: dict[str, Value] = {}

    @classmethod
    def create(
        cls, root: Path, name: str, job: str, *, tensorboard: bool = True, say: Callable[[str], object]
    ) -> RunFolder:
        """Make ``root/name`` for a run that starts anew.

        A folder of that name that holds anything is moved aside as ``<name>.old-N``, never deleted; ``say`` gets the
        one line that tells so. ``job`` is the text of the resolved job.

        Raises:
            ValueError: a name that is no folder name, or a folder that a running trainer still writes to.
        """
        if not name or "/" in name or name.startswith("."):
            raise ValueError(f"run name is {name!r}; it becomes a folder under {root}: pass --name with a plain name")
        path = root / name
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            _refuse_running(path)
            aside = _free_name(path)
            path.rename(aside)
            say(f"{path} holds an earlier run: moved aside to {aside}")
        (path / "rollouts").mkdir(parents=True, exist_ok=True)
        lock = (path / ".lock").open("wb")
        _try_lock(lock)
        (path / "job.yaml").write_text(job)
        trackers: list[Tracker] = [JsonlTracker(path / "metrics.jsonl")]
        if tensorboard:
            trackers.append(TensorBoardTracker(path / "tensorboard"))
        return cls(path, lock, trackers)

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

    def close(self) -> None:
        """Write the trace and the picture of what ran last, and close every file."""
        try:
            if self._recent:
                self._write_trace()
                draw_lanes(self._recent[-1], self._last, self.path / "lanes.png")
        finally:
            for tracker in self._trackers:
                tracker.close()
            self._timelines.close()
            self._lock.close()

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


def _refuse_running(path: Path) -> None:
    """Moving a folder under a live trainer would make its next trace land in the new run."""
    try:
        lock = (path / ".lock").open("r+b")
    except (FileNotFoundError, NotADirectoryError):
        return
    with lock:
        if not _try_lock(lock):
            raise ValueError(f"{path} belongs to a run that is still going: stop it, or pass --name for another folder")


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
