"""A job's plan: bytes of a rank by phase, weights by what they share, a step's seconds under each schedule (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rollplex.api.job import JobSpec
from rollplex.memory.plan import Residency
from rollplex.planner.cost import Cost
from rollplex.planner.disaggregated import Disaggregated, disaggregated, split_of
from rollplex.planner.hardware import Hardware
from rollplex.planner.residency import BUDGET_SHARE, Choices, naive, residency
from rollplex.planner.simulate import simulate
from rollplex.planner.workload import Workload
from rollplex.step.timeline import StepTimeline, Yardstick, exposed_seconds, hidden_seconds, saved_seconds
from rollplex.weights.layout import Shares, shares

MODES = ("serial", "overlap", "stream")


@dataclass(frozen=True)
class Predicted:
    """One schedule's step."""

    timeline: StepTimeline
    saved: float | None  # as the metric seconds/saved

    @property
    def seconds(self) -> float:
        return self.timeline.seconds

    @property
    def hidden(self) -> float:
        return hidden_seconds(self.timeline)

    @property
    def exposed(self) -> float:
        return exposed_seconds(self.timeline)


@dataclass(frozen=True)
class JobPlan:
    """Everything that ``rollplex plan`` says about a job."""

    work: Workload
    hardware: Hardware
    mode: str
    naive: Mapping[str, int]
    residency: Residency
    shares: Shares
    steps: Mapping[str, Predicted]
    per_sample: Predicted | None  # serial without shared prefixes; None where the job is that
    disaggregated: Disaggregated | None  # None where the ranks cannot be split

    @property
    def seconds(self) -> float:
        """Of the job's own schedule."""
        return self.steps[self.mode].seconds


def per_sample(seconds: float, work: Workload) -> float:
    """GPU seconds a response: what changes of batch and ranks are compared by."""
    return seconds * work.ranks / (work.prompts * work.group_size)


def plan_job(spec: JobSpec, work: Workload, hardware: Hardware) -> JobPlan:
    """Plan a job's step on given hardware; the job's own choices (budget, activations, optimizer, runAhead) hold."""
    mode, found, cost = _memory(spec, work, hardware)
    steps = _steps(_bounded(work, found), cost, hardware, cost.second_forwards() if _recomputes(found) else 0.0)
    per_sample = None
    if work.share_prefix:
        alone = replace(work, share_prefix=False, run_ahead=None)
        other = Cost(alone, hardware, optimizer_on_host=found.choices["optimizer"] == "host")
        per_sample = Predicted(simulate(alone, other, hardware, "serial"), 0.0)
    return JobPlan(
        work,
        hardware,
        mode,
        naive(work),
        found,
        shares(work.shape, work.train_tensor, work.rollout_tensor, work.item_bytes),
        steps if work.share_prefix else {"serial": steps["serial"]},
        per_sample,
        _apart(work, hardware),
    )


def quick(spec: JobSpec, work: Workload, hardware: Hardware) -> tuple[Residency, float]:
    """The residency plan, and seconds of a step under the job's schedule alone: for comparing many jobs."""
    mode, found, cost = _memory(spec, work, hardware)
    return found, simulate(_bounded(work, found), cost, hardware, mode).seconds


def _memory(spec: JobSpec, work: Workload, hardware: Hardware) -> tuple[str, Residency, Cost]:
    """The schedule, the residency plan under it, and what work costs with the plan's choices."""
    budget = spec.memory.budget_bytes or int(hardware.hbm_bytes * BUDGET_SHARE)
    mode = spec.schedule.mode if work.share_prefix else "serial"
    found = planned(work, hardware, mode, budget, Choices(spec.memory.activations, spec.memory.optimizer))
    on_host = found.choices["optimizer"] == "host"
    return mode, found, Cost(work, hardware, optimizer_on_host=on_host, recompute=_recomputes(found))


def _recomputes(found: Residency) -> bool:
    return found.choices["activations"].startswith("recompute")


def _bounded(work: Workload, found: Residency) -> Workload:
    return replace(work, run_ahead=int(found.choices["activations"].rpartition(" ")[2]))


def planned(work: Workload, hardware: Hardware, mode: str, budget: int, choices: Choices) -> Residency:
    """The residency plan; fewer groups ahead are only simulated where all of them do not fit without a cost."""
    cost = Cost(work, hardware)
    most = min(work.run_ahead or work.groups, work.groups)
    found = residency(work, cost, hardware, mode, budget, replace(choices, run_ahead={most: 0.0}))
    if work.run_ahead is not None or (found.fits and not found.seconds):
        return found
    ahead = sorted({max(1, most // part) for part in (1, 2, 4, 8)} | {1}, reverse=True)
    seconds = {n: simulate(replace(work, run_ahead=n), cost, hardware, mode).seconds for n in ahead}
    best = min(seconds.values())
    slower = {n: value - best for n, value in seconds.items()}
    return residency(work, cost, hardware, mode, budget, replace(choices, run_ahead=slower))


def _steps(work: Workload, cost: Cost, hardware: Hardware, recomputed: float) -> dict[str, Predicted]:
    timelines = {mode: simulate(work, cost, hardware, mode) for mode in (MODES if work.share_prefix else ("serial",))}
    yardstick = Yardstick()
    yardstick.observe(timelines["serial"])
    return {
        mode: Predicted(step, saved_seconds(step, yardstick, recomputed if mode != "serial" else 0.0))
        for mode, step in timelines.items()
    }


def _apart(work: Workload, hardware: Hardware) -> Disaggregated | None:
    ranks = split_of(work)
    trains = work.ranks - ranks
    if trains < work.train_tensor or trains % work.train_tensor or ranks % work.rollout_tensor:
        return None
    return disaggregated(work, hardware, ranks)
