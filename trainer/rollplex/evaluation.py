"""Scoring a policy on held-out prompts, with their frames and, as a control, without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import torch

from rollplex.batch import Media, Prompt
from rollplex.reward.pool import RewardPool
from rollplex.rollout.protocol import Rollout, Sampling

# Sample ids of evaluation never meet those of training: steps count from 1.
_EVALUATION_STEP = 0


def mean_reward(
    rollout: Rollout, rewards: RewardPool, prompts: Sequence[Prompt], samples: int, sampling: Sampling
) -> float:
    """Mean reward over ``samples`` responses to every prompt, by the published weights.

    The same seeds are used at every call, so that two evaluations differ only by their weights.
    """
    rollout.submit(_EVALUATION_STEP, prompts, samples, sampling)
    futures = []
    try:
        while rollout.unfinished:
            for response in rollout.step():
                prompt = prompts[response.prompt]
                futures.append(rewards.submit(response.text, prompt.answer, prompt.row, len(response.token_ids)))
    except BaseException:
        rollout.abort_all()
        raise
    return fmean(future.result().value for future in futures)


def blanked(prompt: Prompt) -> Prompt:
    """The prompt with every frame one flat colour (the processor's mean): same tokens, nothing to see."""
    return replace(prompt, media=tuple(_blank(media) for media in prompt.media))


def _blank(media: Media) -> Media:
    return Media(media.kind, torch.zeros_like(media.patches), media.grid, media.seconds_per_grid)
