"""A rollout without an engine: half of each group answers right, so that there is something to learn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from rollplex import setup
from rollplex.batch import Prompt, Response
from rollplex.rollout.protocol import Sampling
from rollplex.step import parity


class Scripted:
    """Every second sample is the prompt's own answer, the others are wrong; log probabilities are made up."""

    def __init__(self) -> None:
        self.version = self.decode_batch = self.decode_tokens = self.prefill_tokens = self.stalled = 0
        self.batches: list[list[Prompt]] = []
        self._waiting: list[Response] = []

    @property
    def unfinished(self) -> int:
        return len(self._waiting)

    def submit(self, step: int, prompts: Sequence[Prompt], group_size: int, sampling: Sampling) -> None:
        self.batches.append(list(prompts))
        self._waiting = [
            Response(
                number, sample, (5 + sample,), (-1.0,), "length", text="wrong" if sample % 2 else str(prompt.answer)
            )
            for number, prompt in enumerate(prompts)
            for sample in range(group_size)
        ]

    def step(self) -> list[Response]:
        done, self._waiting = self._waiting, []
        return done

    def positions(self, prompt: Prompt) -> None:
        return None

    def publish(self) -> int:
        self.version += 1
        return self.version

    def retire(self) -> None: ...
    def abort_all(self) -> None: ...
    def close(self) -> None: ...


@contextmanager
def scripted(rollout: Scripted | None = None) -> Iterator[Scripted]:
    """``train`` takes this rollout in the place of an engine, and does not compare log probabilities."""
    rollout = rollout or Scripted()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(setup, "build_rollout", lambda *_: rollout)
        patch.setattr(parity, "MAX_FP32", float("inf"))
        yield rollout
