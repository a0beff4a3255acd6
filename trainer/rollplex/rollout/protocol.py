"""What a step needs of a rollout, whoever provides it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from rollplex.batch import Prompt, Response

_COLDEST = 0.01  # vLLM raises lower temperatures to this, which would be another policy than the trainer's


class SampleError(RuntimeError):
    """The engine returned a sample that must not be trained on; ``sample`` is its request id."""

    def __init__(self, sample: str, fault: str) -> None:
        self.sample = sample
        super().__init__(f"rollout sample {sample}: {fault}")


class RetiredError(RuntimeError):
    """The rollout was asked to sample from weights that are not a published version."""


@dataclass(frozen=True)
class Sampling:
    """How responses are sampled: from softmax(logits / temperature), whole vocabulary, no penalties.

    Args:
        temperature: at least 0.01.
        max_tokens: longest response, its stop token included.
        stop_token_ids: ids that end a response (and belong to it); there are no others.
        stop: strings that end a response; its tokens stay as sampled, its text ends before the string.
        limits: ``limits[prompt][sample]`` in place of ``max_tokens``.
        exact: ignore every stop and end at exactly the limit (benchmarks).
        greedy: the likeliest token each time, whatever the temperature. Not a sample of the policy, so nothing that
            could be trained on: only evaluation asks for it, and a group of several is refused.
    """

    temperature: float = 1.0
    max_tokens: int = 512
    stop_token_ids: tuple[int, ...] = ()
    stop: tuple[str, ...] = ()
    limits: tuple[tuple[int, ...], ...] | None = None
    exact: bool = False
    greedy: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= _COLDEST):
            raise ValueError(f"rollout.temperature is {self.temperature}; it must be at least {_COLDEST}")
        shortest = min((limit for row in self.limits for limit in row), default=1) if self.limits else self.max_tokens
        if shortest < 1:
            raise ValueError(f"a response limit of {shortest} tokens; rollout.maxTokens must be at least 1")

    def refuse_greedy_group(self, group_size: int) -> None:
        """Raise ValueError for several greedy responses to one prompt, which would all be the same one."""
        if self.greedy and group_size != 1:
            raise ValueError(f"greedy decoding has one response a prompt, not {group_size}; sample them instead")

    def limit(self, prompt: int, sample: int) -> int:
        """Most tokens of one response."""
        return self.max_tokens if self.limits is None else self.limits[prompt][sample]


class Rollout(Protocol):
    """Submit a batch of groups, then step until nothing is unfinished.

    ``version`` counts published weight versions. Of the last step, ``decode_batch`` is how many samples got tokens,
    ``decode_tokens`` how many tokens that were, ``prefill_tokens`` how many prompt tokens were read.
    """

    @property
    def version(self) -> int: ...
    @property
    def decode_batch(self) -> int: ...
    @property
    def decode_tokens(self) -> int: ...
    @property
    def prefill_tokens(self) -> int: ...

    @property
    def unfinished(self) -> int:
        """Samples that have been submitted and not returned."""

    @property
    def stalled(self) -> int:
        """Unfinished samples that have waited suspiciously long for their next token."""

    def submit(self, step: int, prompts: Sequence[Prompt], group_size: int, sampling: Sampling) -> None:
        """Queue ``group_size`` samples for every prompt. Raises RetiredError without a published version."""

    def step(self) -> list[Response]:
        """Advance every running sample; the samples that finished. Raises SampleError, StallError, RetiredError."""

    def abort_all(self) -> None:
        """Forget what is unfinished."""

    def retire(self) -> None:
        """The weights are about to change: refuse to sample until :meth:`publish`."""

    def publish(self) -> int:
        """Take the weights as they are now as the next version; returns it."""

    def positions(self, prompt: Prompt) -> torch.Tensor | None:
        """Position ids [3, P] that the engine gives a prompt; None where no engine runs."""

    def close(self) -> None:
        """Give back what the rollout holds; it cannot be used afterwards."""
