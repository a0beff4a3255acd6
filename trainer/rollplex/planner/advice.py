"""What to change where a plan does not fit: the cheapest changes, each planned anew (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from rollplex.api.job import JobSpec
from rollplex.planner.plan import JobPlan, per_sample, quick
from rollplex.planner.workload import TEXT_TOKENS, Workload
from rollplex.weights.layout import LayoutError


@dataclass(frozen=True)
class Change:
    """One change of the job: its fields, and what it would bring."""

    text: str
    peak: int
    fits: bool
    slower: float  # GPU seconds a sample over the job's as it is, less one

    def __str__(self) -> str:
        more = "more" if self.slower >= 0 else "less"
        fits = "fits" if self.fits else "does not fit yet"
        return (
            f"{self.text}: peak {self.peak / 2**30:.1f} GiB ({fits}), {abs(self.slower):.1%} {more} GPU time a sample"
        )


def advice(spec: JobSpec, plan: JobPlan) -> list[Change]:
    """The three cheapest changes that fit; where none does, those that come nearest."""
    found = []
    for text, changed, work in _changes(spec, plan.work):
        try:
            other, seconds = quick(changed, work, plan.hardware)
        except LayoutError:
            continue
        if other.peak < plan.residency.peak:
            slower = per_sample(seconds, work) / per_sample(plan.seconds, plan.work) - 1
            found.append(Change(text, other.peak, other.fits, slower))
    found.sort(key=lambda change: (0.0, change.slower) if change.fits else (1.0, float(change.peak)))
    return found[:3]


def _changes(spec: JobSpec, work: Workload) -> Iterator[tuple[str, JobSpec, Workload]]:
    """(what a user would write, the job with it, its workload)."""
    for name in ("activations", "optimizer"):
        if getattr(spec.memory, name) != "auto":
            yield f"memory.{name}: auto", _with(spec, "memory", **{name: "auto"}), work
    if work.run_ahead is not None:
        yield "schedule.runAhead: auto", spec, replace(work, run_ahead=None)
    for part in (2, 4):
        tokens = work.micro_batch_tokens // part
        yield f"training.microBatchTokens: {tokens}", spec, replace(work, micro_batch_tokens=tokens)
    yield (
        f"rollout.maxTokens: {max(1, work.max_response_tokens // 2)}",
        spec,
        replace(
            work,
            max_response_tokens=max(1, work.max_response_tokens // 2),
            response_tokens=max(1, min(work.response_tokens, work.max_response_tokens // 2)),
        ),
    )
    half = max(2, work.prompt_tokens // 2)
    yield (
        f"data.maxPromptTokens: {half}",
        spec,
        replace(work, prompt_tokens=half, media_tokens=min(work.media_tokens, max(0, half - TEXT_TOKENS))),
    )
    for tensor in (2 * work.train_tensor, 4 * work.train_tensor):
        if work.train_ranks % tensor == 0 and tensor <= work.ranks_per_node:
            yield f"parallelism.train.tensor: {tensor}", spec, replace(work, train_tensor=tensor)
    twice = 2 * work.rollout_tensor
    if work.ranks % twice == 0 and twice <= work.ranks_per_node:
        yield f"parallelism.rollout.tensor: {twice}", spec, replace(work, rollout_tensor=twice)
    nodes = 2 * spec.nodes
    yield f"nodes: {nodes}", spec, replace(work, ranks=2 * work.ranks, rollout_ranks=2 * work.rollout_ranks)
    if work.reference:
        yield "algorithm.kl.coefficient: 0", spec, replace(work, reference=False)


def _with(spec: JobSpec, section: str, **values: object) -> JobSpec:
    part = getattr(spec, section)
    return spec.model_copy(update={section: part.model_copy(update=values)})
