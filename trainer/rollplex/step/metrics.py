"""A finished step as the numbers of metrics.jsonl."""

from __future__ import annotations

from collections import Counter
from statistics import fmean, pstdev

from rollplex.step.compute import StepCompute
from rollplex.step.runner import StepResult
from rollplex.step.timeline import Yardstick, timeline_metrics

Metrics = dict[str, float | int | str | None]


def step_metrics(result: StepResult, yardstick: Yardstick) -> Metrics:
    """All metrics of a step that the step itself knows; None: not measured."""
    sums, updated = result.compute.sums, result.updated
    rewards = [score.value for score in result.scores.values()]
    groups: dict[int, set[float]] = {}
    for (group, _), score in result.scores.items():
        groups.setdefault(group, set()).add(score.value)
    problems = Counter(score.problem for score in result.scores.values())
    lengths = [len(response.token_ids) for response in result.responses.values()]
    all_tokens = sum(lengths) + sum(len(result.prompts[group].token_ids) for group, _ in result.responses)
    tokens = max(1, sums.tokens)
    parity = result.compute.parity.summary()
    return {
        "step": result.step,
        "reward/mean": fmean(rewards),
        "reward/std": pstdev(rewards),
        "reward/zero_variance_groups": sum(len(values) == 1 for values in groups.values()),
        "reward/timeouts": problems["timeout"],
        "reward/errors": problems["error"],
        "groups/skipped": result.skipped_groups,
        "groups/filtered": result.filtered_groups,
        "loss": sums.loss * updated.scale,
        "kl/mean": sums.kl / tokens if result.compute.has_reference else None,
        "entropy/mean": sums.entropy / sums.tokens if sums.tokens else None,
        **_ratio(result.compute),
        "grad/norm": updated.grad_norm,
        "learning_rate": updated.learning_rate,
        "update/skipped": int(updated.skipped),
        "update/nonfinite": int(updated.nonfinite),
        "response/tokens_mean": fmean(lengths),
        "response/tokens_max": max(lengths),
        "response/stopped_share": fmean(response.finish == "stop" for response in result.responses.values()),
        "parity/max": parity.get("max"),
        "parity/mean": parity.get("mean"),
        "parity/p95": parity.get("p95"),
        "tokens/prefix": sums.passes["prefix"],
        "tokens/prefix_saved": sums.prefix_saved,
        "tokens/suffix": sums.passes["suffix"],
        "tokens/vision": sums.passes["vision"],
        "tokens/decode": result.decode_tokens,
        "tokens/per_second": all_tokens / result.timeline.seconds,
        "schedule/mode": result.mode,
        "weights/version": result.weights_version,
        **timeline_metrics(result.timeline, yardstick),
    }


def _ratio(compute: StepCompute) -> Metrics:
    """What importance ratios were; nothing where they are 1 by definition, or no token was scored."""
    sums = compute.sums
    if not compute.by_rollout or sums.tokens == 0:
        return {}
    return {
        "ratio/mean": sums.ratio / sums.tokens,
        "ratio/max": sums.ratio_max,
        "ratio/capped_share": sums.capped / sums.tokens,
        "ratio/clipped_share": sums.clipped / sums.tokens,
    }
