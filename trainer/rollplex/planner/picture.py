"""The plan as a picture: bytes of a rank by phase against budget and naive, and the schedules' steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rollplex.planner.hardware import GiB
from rollplex.planner.plan import JobPlan
from rollplex.planner.sweep import Sweep
from rollplex.telemetry.events import compute_seconds

_CLASSES = {"boundary": "#8fc1ea", "permanent": "#8d99ae", "snapshot": "#4fa866", "phase-local": "#f5b35f"}
_DECODE, _HIDDEN, _EXPOSED = "#c9d1de", "#2a9d5c", "#d62839"


def draw_plan(name: str, plan: JobPlan, path: Path) -> None:
    """Write the plan as PNG."""
    figure, (memory, steps) = _figure(2)
    figure.suptitle(f"{name}: {plan.work.shape.name} on {plan.work.ranks} x {plan.hardware.name}", x=0.01, ha="left")
    _draw_memory(memory, plan)
    _draw_steps(steps, plan)
    figure.savefig(path, dpi=110)


def draw_sweep(found: Sweep, path: Path) -> None:
    """Write a sweep as PNG: seconds of a step by schedule, and the peak."""
    figure, (seconds, memory) = _figure(2)
    values = list(found.plans)
    for mode in ("serial", "overlap", "stream", "disaggregated"):
        line = [_seconds(plan, mode) for plan in found.plans.values()]
        if all(value is not None for value in line):
            seconds.plot(values, line, marker="o", label=mode)
    seconds.set(title="seconds of a step, predicted", xlabel=f"{found.parameter} ({found.unit})", ylim=(0, None))
    seconds.legend(frameon=False)
    memory.plot(values, [plan.residency.peak / GiB for plan in found.plans.values()], marker="o", label="planned peak")
    memory.plot(values, [plan.residency.budget / GiB for plan in found.plans.values()], "--", label="budget")
    memory.set(title="GiB of a rank", xlabel=f"{found.parameter} ({found.unit})", ylim=(0, None))
    memory.legend(frameon=False)
    figure.savefig(path, dpi=110)


def _seconds(plan: JobPlan, mode: str) -> float | None:
    if mode == "disaggregated":
        return plan.disaggregated.seconds if plan.disaggregated else None
    return plan.steps[mode].seconds if mode in plan.steps else None


def _figure(columns: int) -> tuple[Any, Any]:
    # No pyplot: it keeps global state and picks a window system; and imported only here, as it takes half a second.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, columns)


def _draw_memory(axes: Any, plan: JobPlan) -> None:
    found = plan.residency
    bars = ["naive", *found.phases]
    axes.bar(0, sum(plan.naive.values()) / GiB, color="#e5e5e5", label="naive, all at once")
    bottoms = [0.0] * len(found.phases)
    for state, colour in _CLASSES.items():
        sizes = [
            sum(group.size for group in found.tensors if group.state_class == state and group.lives_in(phase)) / GiB
            for phase in range(len(found.phases))
        ]
        axes.bar(range(1, len(bars)), sizes, bottom=bottoms, color=colour, label=state)
        bottoms = [bottom + size for bottom, size in zip(bottoms, sizes, strict=True)]
    axes.axhline(found.budget / GiB, color=_EXPOSED, linestyle="--", label=f"budget {found.budget / GiB:.0f}")
    axes.set_xticks(range(len(bars)), [bar.replace(", ", ",\n") for bar in bars], fontsize=8)
    axes.set(title="GiB of a rank, by phase", ylabel="GiB")
    axes.legend(frameon=False, fontsize=8)


def _draw_steps(axes: Any, plan: JobPlan) -> None:
    rows: list[tuple[str, list[tuple[float, str]]]] = []
    for mode, step in plan.steps.items():
        decode = step.seconds - step.exposed
        rows.append((mode, [(decode - step.hidden, _DECODE), (step.hidden, _HIDDEN), (step.exposed, _EXPOSED)]))
    if plan.per_sample:
        compute = sum(compute_seconds(plan.per_sample.timeline).values())
        rows.append(("prefixes\nnot shared", [(plan.per_sample.seconds - compute, _DECODE), (compute, _EXPOSED)]))
    if plan.disaggregated:
        apart = plan.disaggregated
        rows.append(("disaggregated", [(apart.decode, _DECODE), (apart.train + apart.transfer, _EXPOSED)]))
    for row, (_, parts) in enumerate(rows):
        left = 0.0
        for seconds, colour in parts:
            axes.barh(row, seconds, left=left, color=colour)
            left += seconds
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.invert_yaxis()
    for name, colour in (("decode alone", _DECODE), ("compute under decode", _HIDDEN), ("exposed", _EXPOSED)):
        axes.barh(0, 0, color=colour, label=name)
    axes.set(title="seconds of a step, predicted")
    axes.legend(frameon=False, fontsize=8)
