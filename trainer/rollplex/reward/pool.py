"""Scores responses by a job's weighted sum of rewards, every call under a hard time limit.

A function that does not return in time is killed, one that raises (as a verifier does on an answer it cannot read) is
caught: that part of the sample scores 0.0 and the sample is marked, while all other samples keep their scores. Where a
part fails for *every* sample of a step, zeros would look like a bad policy rather than a bad reward, so
:func:`refuse_if_all_failed` raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any, Literal, Protocol

from rollplex.api.errors import Fault, JobError
from rollplex.api.reward import Options
from rollplex.processes import CallTimeoutError, WorkerPool
from rollplex.reward.function import call, check, load_all
from rollplex.reward.named import needs_limit, verifier
from rollplex.reward.text import AnswerError

_CHECK_SECONDS = 120.0  # a reward's file may import a large library

Problem = Literal["timeout", "error"]


class RewardPart(Protocol):
    """One item of the job's ``spec.reward`` (:class:`rollplex.api.reward.RewardSpec`); name or python is set."""

    @property
    def name(self) -> str | None: ...
    @property
    def python(self) -> str | None: ...
    @property
    def weight(self) -> float: ...
    @property
    def timeout_seconds(self) -> float: ...
    def parsed_options(self) -> Options: ...


@dataclass(frozen=True)
class Score:
    """``value`` is the weighted sum; ``parts`` the unweighted values by name (``exact``, or the function's name).

    ``parts`` are empty where the job has no reward (opd may be without): then ``value`` was not measured.
    ``problem`` is set where a part failed (an error outranks a timeout), and ``details`` then says what happened.
    """

    value: float
    parts: Mapping[str, float]
    problem: Problem | None = None
    details: Mapping[str, str] = field(default_factory=dict)


class RewardError(RuntimeError):
    """A reward failed for every sample of a step."""


class RewardPool:
    """Scores responses; safe to use from any thread.

    Args:
        specs: the parts of the sum.
        workers: processes for the parts that may run without end (the user's functions and patterns); where there is
            no such part none is started.

    Raises:
        JobError: a function's file or name is missing, its import fails, or it takes other arguments.
    """

    def __init__(self, specs: Sequence[RewardPart], workers: int) -> None:
        self._parts = list(zip(_names(specs), specs, strict=True))
        self._options = {name: spec.parsed_options() for name, spec in self._parts if spec.python is None}
        functions = [spec.python for spec in specs if spec.python]
        limited = bool(functions) or any(map(needs_limit, self._options.values()))
        self._pool = WorkerPool(workers, "reward", partial(load_all, functions)) if limited else None
        try:
            self._check()
        except BaseException:
            self.close()
            raise

    def _check(self) -> None:
        faults = []
        for index, (_, spec) in enumerate(self._parts):
            if spec.python:
                assert self._pool is not None
                try:
                    self._pool.submit(check, spec.python, timeout=_CHECK_SECONDS).result()
                except Exception as error:  # noqa: BLE001 (whatever it is, it is the job's)
                    said = _one_line(f"{spec.python}: {error}")
                    faults.append(Fault(f"spec.reward.{index}.python", said))
        if faults:
            raise JobError(faults)

    def submit(self, response_text: str, answer: Any, row: Mapping[str, Any], tokens: int) -> Future[Score]:
        """Score one response of ``tokens`` tokens; the future never fails, problems are in the score.

        It is cancelled if the pool is closed.
        """
        sample = _Sample(self._parts)
        if not self._parts:
            sample.future.set_result(Score(0.0, {}))
        scoring: Callable[[], float]
        for name, spec in self._parts:
            if spec.python:
                scoring = partial(call, spec.python, response_text, answer, dict(row))
            else:
                scoring = verifier(self._options[name], response_text, answer, tokens)
                if not needs_limit(self._options[name]):
                    sample.verified(name, scoring)
                    continue
            assert self._pool is not None
            future = self._pool.submit(scoring, timeout=spec.timeout_seconds)
            future.add_done_callback(partial(sample.finished, name))
        return sample.future

    def close(self) -> None:
        """Kill the workers."""
        if self._pool is not None:
            self._pool.close()


def refuse_if_all_failed(scores: Sequence[Score]) -> None:
    """Raise :class:`RewardError` if some part failed for every one of a step's samples."""
    if not scores:
        return
    for name in scores[0].parts:
        if all(name in score.details for score in scores):
            raise RewardError(
                f"reward {name} failed for all {len(scores)} samples of the step; the last: {scores[-1].details[name]}"
            )


class _Sample:
    """Collects the parts of one sample's score as they come, from any thread."""

    def __init__(self, parts: Sequence[tuple[str, RewardPart]]) -> None:
        self.future: Future[Score] = Future()
        self._weights = {name: spec.weight for name, spec in parts}
        self._values: dict[str, float] = {}
        self._details: dict[str, str] = {}
        self._problem: Problem | None = None
        self._lock = Lock()

    def finished(self, name: str, future: Future[float]) -> None:
        if future.cancelled():
            self.future.cancel()
            return
        error = future.exception()
        if error is None:
            self._add(name, future.result())
            return
        self._fail(name, error)

    def verified(self, name: str, verifier: Callable[[], float]) -> None:
        """Run a verifier here and now."""
        try:
            value = verifier()
        except AnswerError as error:
            self._fail(name, error)
        else:
            self._add(name, value)

    def _fail(self, name: str, error: BaseException) -> None:
        with self._lock:
            if not isinstance(error, CallTimeoutError):
                self._problem = "error"
            elif self._problem is None:
                self._problem = "timeout"
            ours = type(error).__module__.startswith("rollplex.")
            self._details[name] = _one_line(str(error) if ours else f"{type(error).__name__}: {error}")
        self._add(name, 0.0)

    def _add(self, name: str, value: float) -> None:
        with self._lock:
            self._values[name] = value
            complete = len(self._values) == len(self._weights)
        if complete:
            # in the job's order, whichever part came last: sums and metrics must not depend on timing
            parts = {part: self._values[part] for part in self._weights}
            total = sum(self._weights[part] * parts[part] for part in parts)
            with suppress(InvalidStateError):  # cancelled: the pool was closed meanwhile
                self.future.set_result(Score(total, parts, self._problem, self._details))


def _one_line(text: str) -> str:
    """What an exception says, as a part of one line of a log: some say a whole page."""
    return " ".join(text.split())


def _names(specs: Sequence[RewardPart]) -> list[str]:
    """The name of each part: the verifier's, or the function's; numbered where two are equal."""
    names: list[str] = []
    for spec in specs:
        name = spec.name or str(spec.python).rpartition(":")[2]
        same = sum(other.partition("#")[0] == name for other in names)
        names.append(f"{name}#{same + 1}" if same else name)
    return names
