"""What a run folder holds about a step: its job, its groups of responses, its metrics."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollplex.api.errors import JobError
from rollplex.api.job import RollplexJob
from rollplex.api.load import load_job
from rollplex.rollout.replay import ReplayError, SavedSample, read_rollouts

_STEP = re.compile(r"step-(\d+)\.jsonl")


@dataclass(frozen=True)
class Run:
    """A run folder; ``metrics`` are its rows in order, ``samples`` those of ``step`` in order."""

    folder: Path
    job: RollplexJob
    step: int
    saved_steps: tuple[int, ...]
    samples: tuple[SavedSample, ...]
    metrics: tuple[dict[str, Any], ...]

    @property
    def groups(self) -> list[list[SavedSample]]:
        """The samples, prompt by prompt; a prompt that is twice in the batch makes two groups."""
        groups: list[list[SavedSample]] = []
        for sample in self.samples:
            last = groups[-1][-1] if groups else None
            if last is None or last.prompt_id != sample.prompt_id or last.sample >= sample.sample:
                groups.append([])
            groups[-1].append(sample)
        return groups

    @property
    def row(self) -> dict[str, Any]:
        """The step's metrics; empty if the run ended before they were written."""
        return next((row for row in self.metrics if row.get("step") == self.step), {})


def read_run(run: str | Path, runs: Path, step: int | None) -> Run:
    """A run by its folder (or that of its checkpoints), or by its name below ``runs``; the newest step by default.

    Raises:
        JobError: no such run, no such step, or files that cannot be read.
    """
    folder = next((path for path in (Path(run), Path(run) / "run", runs / run) if (path / "job.yaml").is_file()), None)
    if folder is None:
        raise JobError.at(str(run), f"is no run folder (with a job.yaml), and neither is {runs / run}")
    steps = saved_steps(folder)
    if not steps:
        raise JobError.at(str(folder / "rollouts"), "holds no step-*.jsonl: no step of this run is complete yet")
    if step is not None and step not in steps:
        raise JobError.at("--step", f"{step} is not saved; there are {len(steps)} steps from {steps[0]} to {steps[-1]}")
    shown = steps[-1] if step is None else step
    try:
        samples = read_rollouts(folder / "rollouts" / f"step-{shown:06d}.jsonl")
    except ReplayError as error:
        raise JobError.at(str(folder / "rollouts"), str(error).removeprefix("rollout.replay: ")) from None
    job = load_job(folder / "job.yaml")
    return Run(folder, job, shown, tuple(steps), tuple(samples), tuple(_metrics(folder / "metrics.jsonl")))


def saved_steps(folder: Path) -> list[int]:
    """Numbers of the steps whose rollouts a run folder holds, ascending."""
    found = (_STEP.fullmatch(file.name) for file in (folder / "rollouts").glob("step-*.jsonl"))
    return sorted(int(match[1]) for match in found if match)


def _metrics(path: Path) -> Sequence[dict[str, Any]]:
    if not path.is_file():
        return []
    rows = []
    for line in path.read_text().splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue  # the line that a running or killed trainer has not finished
    return rows
