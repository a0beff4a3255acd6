"""The plan again and again while one parameter changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from rollplex.api.errors import JobError
from rollplex.api.job import JobSpec
from rollplex.planner.hardware import Hardware
from rollplex.planner.plan import JobPlan, plan_job
from rollplex.planner.workload import TEXT_TOKENS, Workload
from rollplex.weights.layout import LayoutError

Change = Callable[[Workload, Hardware, float], tuple[Workload, Hardware]]


def _prompt(work: Workload, hardware: Hardware, value: float) -> tuple[Workload, Hardware]:
    tokens = max(1, int(value))
    return replace(work, prompt_tokens=tokens, media_tokens=max(0, tokens - TEXT_TOKENS)), hardware


def _decode(work: Workload, hardware: Hardware, value: float) -> tuple[Workload, Hardware]:
    return work, replace(
        hardware,
        decode_efficiency=hardware.decode_efficiency * value,
        engine_step_seconds=hardware.engine_step_seconds / value,
    )


# name -> (what a value is, how it changes workload and hardware)
PARAMETERS: Mapping[str, tuple[str, Change]] = {
    "prompt-tokens": ("tokens of a prompt", _prompt),
    "group-size": ("responses of a prompt", lambda w, h, v: (replace(w, group_size=int(v)), h)),
    "train-tensor": ("train TP", lambda w, h, v: (replace(w, train_tensor=int(v)), h)),
    "rollout-tensor": ("rollout TP", lambda w, h, v: (replace(w, rollout_tensor=int(v)), h)),
    "host-rate": ("GB/s to host memory, each way", lambda w, h, v: (w, replace(h, host_rate=v * 1e9))),
    "far-factor": (
        "host rate of a far NUMA node, of the near one's; ranks are not pinned",
        lambda w, h, v: (w, replace(h, far_factor=v, numa_near=False)),
    ),
    "decode-speed": ("times as fast an engine", _decode),
}


@dataclass(frozen=True)
class Sweep:
    """One plan for each value that can be planned; ``refused`` says why the others cannot."""

    parameter: str
    unit: str
    plans: Mapping[float, JobPlan]
    refused: Mapping[float, str]


def sweep(spec: JobSpec, work: Workload, hardware: Hardware, parameter: str, values: Sequence[float]) -> Sweep:
    """Plan once for each value."""
    unit, change = PARAMETERS[parameter]
    plans: dict[float, JobPlan] = {}
    refused: dict[float, str] = {}
    for value in values:
        try:
            changed, other = change(work, hardware, value)
            changed.check()
            plans[value] = plan_job(spec, changed, other)
        except (JobError, LayoutError) as error:
            refused[value] = str(error)
    return Sweep(parameter, unit, plans, refused)


def parse(text: str) -> tuple[str, list[float]]:
    """``prompt-tokens=470,1200`` as name and values.

    Raises:
        JobError: another form, a parameter that nobody knows, or a value that is no number above 0.
    """
    name, equals, listed = text.partition("=")
    known = ", ".join(PARAMETERS)
    if name not in PARAMETERS or not equals:
        raise JobError.at("--sweep", f"{text!r}: write PARAMETER=VALUE,VALUE with one of {known}")
    try:
        values = [float(value) for value in listed.split(",")]
    except ValueError:
        raise JobError.at("--sweep", f"{text!r}: values are numbers with commas between") from None
    whole = name in ("prompt-tokens", "group-size", "train-tensor", "rollout-tensor")
    if bad := [value for value in values if not 0 < value < float("inf") or (whole and value != int(value))]:
        raise JobError.at("--sweep", f"{bad[0]:g} must be a {'whole ' if whole else ''}number above 0")
    return name, values


def sweep_rows(found: Sweep) -> list[list[str]]:
    """Head and rows of a table."""
    rows = [
        [found.parameter, "peak GiB", "serial", "overlap", "stream", "serial/stream", "disaggregated/stream", "saved"]
    ]
    for value, plan in found.plans.items():
        steps = {mode: step.seconds for mode, step in plan.steps.items()}
        best, serial, apart = steps.get("stream"), steps["serial"], plan.disaggregated
        saved = plan.steps["stream"].saved if best else None
        rows.append(
            [
                f"{value:g}",
                f"{plan.residency.peak / 2**30:.1f}{'' if plan.residency.fits else ' too much'}",
                f"{serial:.2f}",
                *(f"{steps[mode]:.2f}" if mode in steps else "" for mode in ("overlap", "stream")),
                f"{serial / best:.2f}" if best else "",
                f"{apart.seconds / best:.2f}" if best and apart else "",
                "" if saved is None else f"{saved:.2f}",
            ]
        )
    return rows
