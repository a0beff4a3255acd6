"""What ``rollplex plan`` prints and writes as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rollplex.memory.plan import Tensors
from rollplex.planner.advice import Change
from rollplex.planner.hardware import SOURCES, GiB
from rollplex.planner.plan import JobPlan

Row = Sequence[str]


def text_of(name: str, plan: JobPlan, changes: Sequence[Change]) -> str:
    """The whole answer as text: what was assumed, bytes by phase, weights, seconds, and what to change."""
    work, found = plan.work, plan.residency
    rollout = f", {work.rollout_ranks} of them for rollout" if work.rollout_ranks else ""
    lines = [
        f"{name}: {work.shape.name} on {work.ranks} x {plan.hardware.name}{rollout}, train TP {work.train_tensor}, "
        f"rollout TP {work.rollout_tensor}, schedule {plan.mode}",
        f"a step: {work.prompts} prompts of {work.prompt_tokens} tokens x {work.group_size} responses of about "
        f"{work.response_tokens} (at most {work.max_response_tokens}); "
        "--prompt-tokens and --response-tokens change that",
        "",
        f"GiB of one rank{_phase_legend(found.phases)}",
        *table(["", "class", "naive", *map(str, range(1, len(found.phases) + 1))], _memory_rows(plan)),
        "",
        _verdict(plan),
        f"chosen: {', '.join(f'{what}: {how}' for what, how in found.choices.items())}"
        + (f"; that costs {found.seconds:.2f} s a step" if found.seconds else ""),
        *(["to make it fit, cheapest first:", *(f"  {change}" for change in changes)] if changes else []),
        "",
        _weights(plan),
        "",
        "seconds of a step, predicted",
        *table(["schedule", "step", "hidden", "saved", "exposed", "to serial"], _step_rows(plan)),
    ]
    return "\n".join(line.rstrip() for line in lines)


def _verdict(plan: JobPlan) -> str:
    found, naive = plan.residency, sum(plan.naive.values())
    over = found.peak - found.budget
    fits = "it fits" if found.fits else f"it does not fit: {over / GiB:.1f} GiB too much"
    return (
        f"planned peak {found.peak / GiB:.1f} GiB of {found.budget / GiB:.1f} GiB, naive {naive / GiB:.1f} GiB: {fits}"
    )


def _phase_legend(phases: Sequence[str]) -> str:
    return ", by phase: " + "; ".join(f"{number} {phase}" for number, phase in enumerate(phases, 1))


def _memory_rows(plan: JobPlan) -> Iterator[Row]:
    found = plan.residency
    by_name: dict[str, list[Tensors]] = {}
    for group in found.tensors:
        by_name.setdefault(group.name, []).append(group)
    naive = dict(plan.naive)
    phases = range(len(found.phases))
    for name, groups in by_name.items():
        sizes = [sum(group.size for group in groups if group.lives_in(phase)) for phase in phases]
        yield [name, groups[0].state_class, _gib(naive.pop(name, 0)), *map(_gib, sizes)]
    for name, size in naive.items():
        yield [name, "", _gib(size), *("" for _ in phases)]
    yield ["in all", "", _gib(sum(plan.naive.values())), *map(_gib, found.peaks)]


def _weights(plan: JobPlan) -> str:
    found = plan.shares
    return (
        f"weights of the language model: {found.alias:.1%} aliased, {found.transpose:.1%} transposed views, "
        f"{found.copy:.1%} copied ({found.copied_bytes / GiB:.2f} GiB instead of {found.full_copy_bytes / GiB:.2f})"
    )


def _step_rows(plan: JobPlan) -> Iterator[Row]:
    serial = plan.steps["serial"].seconds
    for mode, step in plan.steps.items():
        saved = "" if step.saved is None else f"{step.saved:.2f}"
        yield [
            mode,
            f"{step.seconds:.2f}",
            f"{step.hidden:.2f}",
            saved,
            f"{step.exposed:.2f}",
            _of(serial, step.seconds),
        ]
    if plan.per_sample:
        yield [
            "serial, prefixes not shared",
            f"{plan.per_sample.seconds:.2f}",
            "",
            "",
            "",
            _of(serial, plan.per_sample.seconds),
        ]
    if plan.disaggregated:
        apart = plan.disaggregated
        name = f"disaggregated, {apart.rollout_ranks} for rollout"
        yield [name, f"{apart.seconds:.2f}", "", "", "", _of(serial, apart.seconds)]


def _of(serial: float, seconds: float) -> str:
    return f"{serial / seconds:.2f}x"


def _gib(size: int) -> str:
    return f"{size / GiB:.2f}" if size else ""


def table(head: Row, rows: Iterable[Row]) -> list[str]:
    """Lines of aligned columns: words to the left, numbers to the right."""
    cells = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    numbers = [column >= (2 if "class" in head else 1) for column in range(len(head))]
    return [
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, numbers, strict=True)
        )
        for row in cells
    ]


def json_of(name: str, plan: JobPlan, changes: Sequence[Change]) -> dict[str, Any]:
    """The same as plain data; sizes in bytes of one rank, times in seconds."""
    found, parts, work = plan.residency, plan.shares, plan.work
    steps: dict[str, Any] = {
        mode: {
            "seconds": step.seconds,
            "hidden_seconds": step.hidden,
            "saved_seconds": step.saved,
            "exposed_seconds": step.exposed,
        }
        for mode, step in plan.steps.items()
    }
    if plan.per_sample:
        steps["per-sample"] = {"seconds": plan.per_sample.seconds}
    if plan.disaggregated:
        apart = plan.disaggregated
        steps["disaggregated"] = {
            "seconds": apart.seconds,
            "decode_seconds": apart.decode,
            "train_seconds": apart.train,
            "transfer_seconds": apart.transfer,
            "rollout_ranks": apart.rollout_ranks,
        }
    return {
        "job": name,
        "hardware": {field: getattr(plan.hardware, field) for field in ("name", *SOURCES)},
        "workload": {
            "shape": work.shape.name,
            "ranks": work.ranks,
            "prompts": work.prompts,
            "group_size": work.group_size,
            "prompt_tokens": work.prompt_tokens,
            "response_tokens": work.response_tokens,
            "max_response_tokens": work.max_response_tokens,
            "train_tensor": work.train_tensor,
            "rollout_tensor": work.rollout_tensor,
            "schedule": plan.mode,
        },
        "memory": {
            "naive_bytes": sum(plan.naive.values()),
            "planned_bytes": found.peak,
            "budget_bytes": found.budget,
            "fits": found.fits,
            "naive": dict(plan.naive),
            "phases": list(found.phases),
            "phase_bytes": list(found.peaks),
            "choices": dict(found.choices),
            "classes": {
                state: max(
                    sum(g.size for g in found.tensors if g.state_class == state and g.lives_in(phase))
                    for phase in range(len(found.phases))
                )
                for state in dict.fromkeys(group.state_class.value for group in found.tensors)
            },
            "tensors": [
                {
                    "name": group.name,
                    "class": group.state_class.value,
                    "bytes": group.size,
                    "first": found.phases[group.first],
                    "last": found.phases[group.last],
                    "offset": found.offsets[group],
                }
                for group in found.tensors
            ],
        },
        "weights": {
            "shares": {"alias": parts.alias, "transpose": parts.transpose, "copy": parts.copy},
            "copied_bytes": parts.copied_bytes,
            "full_copy_bytes": parts.full_copy_bytes,
            "gathered_bytes": parts.gathered_bytes,
        },
        "step": steps,
        "changes": [
            {"change": c.text, "planned_bytes": c.peak, "fits": c.fits, "more_gpu_seconds_per_sample": c.slower}
            for c in changes
        ],
    }
