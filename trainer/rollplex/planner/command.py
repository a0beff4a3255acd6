"""``rollplex plan``: from a job and options to text, JSON and a picture."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollplex.api.job import RollplexJob
from rollplex.planner.advice import advice
from rollplex.planner.hardware import hardware_of
from rollplex.planner.plan import plan_job
from rollplex.planner.report import json_of, table, text_of
from rollplex.planner.sweep import parse, sweep, sweep_rows
from rollplex.planner.workload import workload_of


@dataclass(frozen=True)
class Options:
    """What the command line gives beside the job."""

    ranks: int
    gpu: str | None = None
    hardware: Path | None = None
    prompt_tokens: int | None = None
    response_tokens: int | None = None
    sweep: str | None = None
    json_file: Path | None = None
    png_file: Path | None = None


def plan_command(job: RollplexJob, options: Options) -> str:
    """Plan, write the files that were asked for, and return what to print.

    Raises:
        JobError: hardware, lengths or a sweep that nobody knows, or degrees that do not cut the model.
    """
    name, spec = job.metadata.name, job.spec
    hardware = hardware_of(spec.hardware.profile, options.gpu, options.hardware)
    work = workload_of(spec, options.ranks, options.prompt_tokens, options.response_tokens)
    work.check()
    if options.sweep:
        found = sweep(spec, work, hardware, *parse(options.sweep))
        _write_json(options.json_file, [{"value": v, **json_of(name, p, ())} for v, p in found.plans.items()])
        if options.png_file:
            from rollplex.planner.picture import draw_sweep

            draw_sweep(found, options.png_file)
        head, *rows = sweep_rows(found)
        refused = [f"{value:g}: {why}" for value, why in found.refused.items()]
        return "\n".join([*table(head, rows), *refused])
    plan = plan_job(spec, work, hardware)
    changes = () if plan.residency.fits else advice(spec, plan)
    _write_json(options.json_file, json_of(name, plan, changes))
    if options.png_file:
        from rollplex.planner.picture import draw_plan

        draw_plan(name, plan, options.png_file)
    return text_of(name, plan, changes)


def _write_json(path: Path | None, data: Any) -> None:
    if path:
        path.write_text(json.dumps(data, indent=2) + "\n")
