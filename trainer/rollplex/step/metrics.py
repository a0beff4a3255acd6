"""A finished step as the numbers of metrics.jsonl."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from statistics import fmean, pstdev

from rollplex.reward.pool import Score
from rollplex.step.compute import StepCompute
from rollplex.step.runner import StepResult
from rollplex.step.timeline import Yardstick, timeline_metrics

Metrics = dict[str, float | int | str | None]


def step_metrics(result: StepResult, yardstick: Yardstick) -> Metrics:
    """All metrics of a step that the step itself knows; None: not measured."""
    sums, updated = result.compute.sums, result.updated
    lengths = [len(response.token_ids) for response in result.responses.values()]
    all_tokens = sum(lengths) + sum(len(result.prompts[group].token_ids) for group, _ in result.responses)
    tokens = max(1, sums.tokens)
    parity = result.compute.parity.summary()
    return {
        "step": result.step,
        **reward_metrics(result.scores),
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


def reward_metrics(scores: Mapping[tuple[int, int], Score]) -> Metrics:
    """What responses earned, by (group, sample); nothing where the job has no reward."""
    given = {key: score for key, score in scores.items() if score.parts}
    if not given:
        return {}
    values = [score.value for score in given.values()]
    groups: dict[int, set[float]] = {}
    for (group, _), score in given.items():
        groups.setdefault(group, set()).add(score.value)
    problems = Counter(score.problem for score in given.values())
    parts = next(iter(given.values())).parts
    return {
        "reward/mean": fmean(values),
        "reward/std": pstdev(values),
        **{f"reward/part/{name}": fmean(s.parts[name] for s in given.values()) for name in parts},
        "reward/zero_variance_groups": sum(len(rewards) == 1 for rewards in groups.values()),
        "reward/timeouts": problems["timeout"],
        "reward/errors": problems["error"],
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
