"""What can be wrong with a job or a run, in words for the person who started it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong: where (``spec.algorithm.groupSize``, a file, an option), and what to do about it."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class JobError(ValueError):
    """The job, or what it points at, cannot be run as written. Holds every fault that was found, not only the first."""

    exit_code = 2

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = list(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))

    @classmethod
    def at(cls, path: str, message: str) -> JobError:
        """A job error of one fault."""
        return cls([Fault(path, message)])


class RunStopped(Exception):  # noqa: N818 (the pod contract's word; not an error of the program)
    """The run stopped itself (parity, non-finite limit, a stalled request): restarting it would not help."""

    exit_code = 3


class StepFailed(Exception):  # noqa: N818 (said of a step, as RunStopped of a run)
    """A step could not be finished (an engine that answers no more, a reward that always fails); a restart may help."""

    exit_code = 1


class RunInterrupted(Exception):  # noqa: N818 (as RunStopped)
    """The run was told to stop and has saved: ``exit_code`` is 130 (Ctrl-C) or 143 (SIGTERM)."""

    def __init__(self, exit_code: int, message: str) -> None:
        self.exit_code = exit_code
        super().__init__(message)
