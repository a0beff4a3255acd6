"""The batch of the exactness tests, and doubles for the two lanes that are not under test."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import torch

from rollplex.api.job import RollplexJob
from rollplex.api.shapes import ModelShape
from rollplex.batch import Prompt, Response
from rollplex.reward.pool import Score
from rollplex.rollout.protocol import Sampling
from tests.engine.tiny import medium, prompt, text

GROUP = 4
MAX_TOKENS = 24
LENGTHS = ([1, 2, 3, 24], [5, 10, 7, 1], [4, 0, 9, 2], [13, 1, 6, 20])
REWARDS = ([1.0, 0.0, 0.0, 0.5], [0.0, 1.0, 1.0, 0.25], [10.0, 0.0, 0.5, 0.0], [0.1, 0.2, 0.3, 0.9])


def make_prompts(shape: ModelShape) -> list[Prompt]:
    """Two videos of equal shape (and different pixels and timing), one image beside a video, one text-only prompt."""
    first = medium("video", (4, 6, 6), 1, shape, seconds=1.0)
    second = medium("video", (4, 6, 6), 2, shape, seconds=0.5)
    image = medium("image", (1, 4, 8), 3, shape)
    return [
        prompt("video", shape, [text(3, 10), first, text(7, 11)]),
        prompt("video and image", shape, [text(2, 12), image, text(5, 13), second, text(3, 14)]),
        prompt("text", shape, [text(9, 15)]),
        prompt("the first video again", shape, [first, text(6, 16)]),
    ]


def make_responses(lengths: Sequence[Sequence[int]] = LENGTHS) -> dict[tuple[int, int], Response]:
    """Random responses of given lengths; their text is the reward that the double of the reward pool gives."""
    return {
        (group, sample): Response(
            prompt=group,
            sample=sample,
            token_ids=tuple(text(length, 100 + 10 * group + sample)),
            logprobs=(-1.0,) * length,
            finish="length",
            text=str(REWARDS[group][sample]),
        )
        for group, row in enumerate(lengths)
        for sample, length in enumerate(row)
    }


class ScriptedRollout:
    """Hands given responses out in a given order, a few a step."""

    def __init__(self, responses: dict[tuple[int, int], Response], order_seed: int = 0) -> None:
        self._responses = responses
        self._seed = order_seed
        self._waiting: list[Response] = []
        self.version = 1
        self.decode_batch = self.decode_tokens = self.prefill_tokens = 0

    @property
    def unfinished(self) -> int:
        return len(self._waiting)

    @property
    def stalled(self) -> int:
        return 0

    def submit(self, step: int, prompts: Sequence[Prompt], group_size: int, sampling: Sampling) -> None:
        self._waiting = [self._responses[g, i] for g in range(len(prompts)) for i in range(group_size)]
        random.Random(self._seed).shuffle(self._waiting)

    def step(self) -> list[Response]:
        done, self._waiting = self._waiting[:3], self._waiting[3:]
        self.decode_batch = self.decode_tokens = len(done)
        return done

    def abort_all(self) -> None:
        self._waiting = []

    def retire(self) -> None:
        assert not self._waiting

    def publish(self) -> int:
        self.version += 1
        return self.version

    def positions(self, prompt: Prompt) -> torch.Tensor | None:
        return None

    def close(self) -> None:
        pass


class TextIsReward:
    """A reward pool whose score is the response's text."""

    def submit(self, response_text: str, answer: Any, row: Any, tokens: int) -> Future[Score]:
        future: Future[Score] = Future()
        future.set_result(Score(float(response_text), {"number": float(response_text)}))
        return future


@dataclass(frozen=True)
class Case:
    """One way to run the same step."""

    mode: str = "stream"
    share: bool = True
    recompute: bool = False
    budget: int = 10_000
    run_ahead: int | str = "auto"
    deterministic: bool = False
    normalization: str = "token"
    kl: float = 0.3
    order: int = 0
    algorithm: Mapping[str, Any] = field(default_factory=dict)  # keys of spec.algorithm that replace the ones here

    def job(self, **optimizer: Any) -> RollplexJob:
        return RollplexJob.model_validate(
            {
                "metadata": {"name": "exact"},
                "spec": {
                    "model": {"path": "unused"},
                    "data": {"train": "unused"},
                    "reward": [{"name": "exact"}],
                    "algorithm": {
                        "groupSize": GROUP,
                        "normalization": self.normalization,
                        "kl": {"coefficient": self.kl},
                        **self.algorithm,
                    },
                    "rollout": {"maxTokens": MAX_TOKENS},
                    "training": {
                        "steps": 3,
                        "promptsPerStep": len(LENGTHS),
                        "microBatchTokens": self.budget,
                        "optimizer": {"maxGradNorm": 1e6, "warmupSteps": 0, **optimizer},
                    },
                    "schedule": {
                        "mode": self.mode,
                        "sharePrefix": self.share,
                        "runAhead": self.run_ahead,
                        "deterministic": self.deterministic,
                    },
                },
            }
        )
