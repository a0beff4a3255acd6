"""Saving while training goes on: a copy to host memory, then the disk in a thread of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from threading import Thread
from typing import Any

import torch

from rollplex.api.output import CheckpointSpec
from rollplex.checkpoint.store import CheckpointStore, DamagedError
from rollplex.files import reason
from rollplex.weights.shards import Entry


class SaveError(RuntimeError):
    """A checkpoint could not be written; the one before it is still whole."""


@dataclass(frozen=True)
class Committed:
    """Where a run stands after a step, beside its tensors. Everything here is plain data."""

    step: int = 0
    position: int | None = None  # the sampler's, after the step; None: nothing was read yet
    skipped_rows: Mapping[str, int] = field(default_factory=dict)  # by reason, since the run began
    skipped_ids: Sequence[str] = ()  # of these rows; a checkpoint of before they were noted has none
    weights_version: int = 0  # that the step read
    nonfinite_in_a_row: int = 0  # updates skipped up to this step for a loss or gradient that was not finite
    score: float | None = None  # held-out reward after the step, where it was measured
    unevaluated: bool = False  # the step's evaluation was cut short: whoever goes on makes it first

    def as_state(self) -> dict[str, Any]:
        return asdict(self)


class Saver:
    """Decides when a checkpoint is due, and writes one at a time.

    Args:
        store: where to.
        spec: how often, and how many are kept.
        last_step: the run's target, which is always saved.
        head: what belongs to every checkpoint of the run: ``job`` and ``contents``.
        tensors: the state's tensors as they are when it is called; copied before :meth:`copy` returns.
        measured: fingerprint of what the run's scores measure; only stored scores of the same one are compared.
    """

    def __init__(
        self,
        store: CheckpointStore,
        spec: CheckpointSpec,
        last_step: int,
        head: Mapping[str, Any],
        tensors: Callable[[], Mapping[str, torch.Tensor]],
        measured: str | None,
    ) -> None:
        self._store = store
        self._spec = spec
        self._last_step = last_step
        self._head = head
        self._tensors = tensors
        self._measured = measured
        self._thread: Thread | None = None
        self._error: Exception | None = None
        self._bytes = 0  # of the save in progress
        self._copied: tuple[Committed, dict[str, torch.Tensor]] | None = None
        steps = store.steps()
        self._newest = steps[-1] if steps else 0
        alike = [found.score for found in store.scored().values() if found.measured == measured is not None]
        self._best = max(alike, default=None)

    def due(self, at: Committed) -> bool:
        """Every so many steps, at the last step, and where the held-out reward is the best so far."""
        better = at.score is not None and (self._best is None or at.score > self._best)
        best = better and self._spec.keep_best > 0
        return at.step % self._spec.every_steps == 0 or at.step == self._last_step or best

    def copy(self, at: Committed) -> float:
        """Copy the state to host memory, after the save before this one has ended; returns the seconds that took.

        Raises:
            SaveError: that one failed.
        """
        start = time.perf_counter()
        self.wait()
        copied = {name: tensor.detach().to("cpu", copy=True) for name, tensor in self._tensors().items()}
        self._copied = at, copied
        return time.perf_counter() - start

    def start(self) -> None:
        """Begin to write what was copied, if anything was."""
        if self._copied is None:
            return
        (at, tensors), self._copied = self._copied, None
        if at.score is not None and (self._best is None or at.score > self._best):
            self._best = at.score
        self._newest = at.step
        self._thread = Thread(target=self._write, args=(at, tensors), name="checkpoint", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Until the save in progress is on the disk. Raises SaveError if it failed."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            error, self._error = self._error, None
            folder = self._store.folder
            why = reason(error, folder, self._bytes) if isinstance(error, OSError) else str(error)
            kept = self._store.steps()
            before = f"the one of step {kept[-1]} is whole" if kept else "there is none before it"
            raise SaveError(
                f"the checkpoint of step {self._newest} could not be written to {folder}: {why}; {before}. Make room: "
                "the same command goes on from there"
            ) from error

    def rate(self, at: Committed) -> None:
        """Note the score of the step that was saved last, whose evaluation has been made up for.

        Raises:
            SaveError: its manifest could not be written.
        """
        assert at.score is not None, "there is something to note"
        self.wait()
        try:
            self._store.rate(at.step, at.score, self._measured)
        except (OSError, DamagedError) as error:
            raise SaveError(
                f"the score of step {at.step} could not be noted in {self._store.folder}: {error}"
            ) from error
        self._best = at.score if self._best is None else max(self._best, at.score)

    def save(self, at: Committed) -> None:
        """Save now and wait for it, unless this step is saved already or nothing has happened yet."""
        self.wait()
        if at.step > self._newest:
            self.copy(at)
            self.start()
            self.wait()

    def _write(self, at: Committed, tensors: dict[str, torch.Tensor]) -> None:
        try:
            entries = {name: Entry.of(tensor) for name, tensor in tensors.items()}
            self._bytes = sum(entry.bytes for entry in entries.values())
            measured = None if at.score is None else self._measured
            self._store.write(at.step, entries, {**self._head, **at.as_state()}, at.score, measured=measured)
            self._store.prune(self._spec.keep_last, self._spec.keep_best)
        except Exception as error:  # noqa: BLE001 (raised again in the trainer's thread)
            self._error = error
