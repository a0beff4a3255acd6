"""A rollout that decodes live and hands out the same responses every time.

Comparing schedules needs equal work. The engine decodes each round anew, every sample to the recorded length; what the
trainer learns from are the recorded responses, token for token, even where a GPU's arithmetic would let one flip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from rollplex.batch import Prompt, Response
from rollplex.rollout.protocol import Rollout, Sampling


class SameWork:
    """Wraps a rollout; :meth:`record` first, then every submission repeats that batch."""

    def __init__(self, rollout: Rollout) -> None:
        self._rollout = rollout
        self.recorded: dict[tuple[int, int], Response] = {}

    def record(self, step: int, prompts: Sequence[Prompt], group_size: int, sampling: Sampling) -> None:
        """Sample the batch once and keep the responses."""
        self._rollout.submit(step, prompts, group_size, sampling)
        while self._rollout.unfinished:
            self.recorded |= {(response.prompt, response.sample): response for response in self._rollout.step()}

    def submit(self, step: int, prompts: Sequence[Prompt], group_size: int, sampling: Sampling) -> None:
        """Queue the recorded batch: every sample to exactly its recorded length."""
        limits = tuple(
            tuple(len(self.recorded[prompt, sample].token_ids) for sample in range(group_size))
            for prompt in range(len(prompts))
        )
        self._rollout.submit(step, prompts, group_size, replace(sampling, limits=limits, exact=True))

    def step(self) -> list[Response]:
        return [self.recorded[response.prompt, response.sample] for response in self._rollout.step()]

    @property
    def version(self) -> int:
        return self._rollout.version

    @property
    def decode_batch(self) -> int:
        return self._rollout.decode_batch

    @property
    def decode_tokens(self) -> int:
        return self._rollout.decode_tokens

    @property
    def prefill_tokens(self) -> int:
        return self._rollout.prefill_tokens

    @property
    def unfinished(self) -> int:
        return self._rollout.unfinished

    @property
    def stalled(self) -> int:
        return self._rollout.stalled

    def abort_all(self) -> None:
        self._rollout.abort_all()

    def retire(self) -> None:
        self._rollout.retire()

    def publish(self) -> int:
        return self._rollout.publish()

    def positions(self, prompt: Prompt) -> torch.Tensor | None:
        return self._rollout.positions(prompt)

    def close(self) -> None:
        self._rollout.close()
