"""Scoring a policy on held-out prompts: sampled, greedily, and, as a control, without their frames."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean

import torch

from rollplex.api.output import EvaluationSpec
from rollplex.batch import Media, Prompt
from rollplex.reward.pool import RewardPool, Score, refuse_if_all_failed
from rollplex.rollout.protocol import Rollout, Sampling
from rollplex.step.metrics import Metrics
from rollplex.telemetry.keys import PASS_AT

# Sample ids of evaluation never meet those of training: steps count from 1.
_EVALUATION_STEP = 0


def is_due(spec: EvaluationSpec, step: int, last_step: int) -> bool:
    """Every so many steps, and always after the last one."""
    return step % spec.every_steps == 0 or step == last_step


def evaluate(
    rollout: Rollout,
    rewards: RewardPool,
    prompts: Sequence[Prompt],
    spec: EvaluationSpec,
    sampling: Sampling,
    check: Callable[[], None] = lambda: None,
) -> Metrics:
    """The ``eval/`` metrics of the published weights. What ``check`` raises between engine steps ends it.

    The same seeds are used at every call, so that two evaluations differ only by their weights.

    Raises:
        RewardError: a part of the reward fails for every response.
        SampleError, StallError: as ``rollout.step``.
    """
    sampled = _rewards(rollout, rewards, prompts, spec.samples, sampling, check)
    metrics: Metrics = {"eval/reward/mean": _mean(sampled)}
    for k in PASS_AT:
        if k <= spec.samples:
            passed = [sum(reward >= spec.pass_reward for reward in group) for group in sampled]
            metrics[f"eval/pass@{k}"] = fmean(pass_at(k, spec.samples, count) for count in passed)
    if spec.greedy:
        metrics["eval/greedy/reward/mean"] = _mean(
            _rewards(rollout, rewards, prompts, 1, replace(sampling, greedy=True), check)
        )
    if spec.blank_frames:
        without = [blanked(prompt) for prompt in prompts]
        metrics["eval/blank/reward/mean"] = _mean(_rewards(rollout, rewards, without, spec.samples, sampling, check))
    return metrics


def pass_at(k: int, samples: int, passed: int) -> float:
    """Chance that one of ``k`` responses passes, where ``passed`` of ``samples`` (at least ``k``) did.

    The unbiased estimator 1 - C(n - c, k) / C(n, k) of Chen et al. 2021 (arXiv 2107.03374, eq. 1).
    """
    return 1.0 - math.comb(samples - passed, k) / math.comb(samples, k)


def blanked(prompt: Prompt) -> Prompt:
    """The prompt with every frame one flat colour (the processor's mean): same tokens, nothing to see."""
    return replace(prompt, media=tuple(_blank(media) for media in prompt.media))


def _rewards(
    rollout: Rollout,
    rewards: RewardPool,
    prompts: Sequence[Prompt],
    samples: int,
    sampling: Sampling,
    check: Callable[[], None],
) -> list[list[float]]:
    """Rewards [prompt][sample] of ``samples`` responses to every prompt."""
    rollout.submit(_EVALUATION_STEP, prompts, samples, sampling)
    futures = {}
    try:
        while rollout.unfinished:
            check()
            for response in rollout.step():
                prompt = prompts[response.prompt]
                future = rewards.submit(response.text, prompt.answer, prompt.row, len(response.token_ids))
                futures[response.prompt, response.sample] = future
    except BaseException:
        rollout.abort_all()
        raise
    scores: dict[tuple[int, int], Score] = {key: future.result() for key, future in futures.items()}
    refuse_if_all_failed(list(scores.values()))
    return [[scores[prompt, sample].value for sample in range(samples)] for prompt in range(len(prompts))]


def _mean(rewards: Sequence[Sequence[float]]) -> float:
    return fmean(reward for group in rewards for reward in group)


def _blank(media: Media) -> Media:
    return replace(media, patches=torch.zeros_like(media.patches))
