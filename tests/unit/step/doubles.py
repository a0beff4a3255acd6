"""Doubles of what a step runs on: a rollout that is told what to do, rewards that come when they are let."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from rollplex.batch import Prompt, Response
from rollplex.reward.pool import Score
from rollplex.rollout.protocol import Sampling
from rollplex.step.work import Item, Kind, StepPlan, waits


def make_response(group: int, sample: int, text: str = "1.0") -> Response:
    return Response(group, sample, (1,) * (group + sample + 1), (-1.0,) * (group + sample + 1), "length", text=text)


class OneByOne:
    """Finishes one sample a step, in a random order; ``before_step`` sees the number of the step, from 0."""

    def __init__(
        self, group_sizes: Sequence[int], order: int = 0, before_step: Callable[[int], None] = lambda step: None
    ) -> None:
        self._waiting = [make_response(group, i) for group, size in enumerate(group_sizes) for i in range(size)]
        random.Random(order).shuffle(self._waiting)
        self._before_step = before_step
        self.steps = 0
        self.version = 1
        self.decode_batch = self.decode_tokens = self.prefill_tokens = 0

    @property
    def unfinished(self) -> int:
        return len(self._waiting)

    @property
    def stalled(self) -> int:
        return 0

    def submit(self, step: int, prompts: Sequence[Prompt], group_size: int, sampling: Sampling) -> None:
        raise NotImplementedError("a double for one step, whose samples are there from the start")

    def step(self) -> list[Response]:
        self._before_step(self.steps)
        self.steps += 1
        done = [self._waiting.pop()]
        self.decode_batch = 1
        self.decode_tokens = len(done[0].token_ids)
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


class Rewards:
    """Scores by ``score`` in threads of their own, or on the spot without."""

    def __init__(self, score: Callable[[str], float] = float, threads: int = 0) -> None:
        self._score = score
        self._threads = ThreadPoolExecutor(threads) if threads else None

    def submit(self, response_text: str, answer: Any, row: Any, tokens: int) -> Future[Score]:
        if self._threads is not None:
            return self._threads.submit(self._scored, response_text)
        future: Future[Score] = Future()
        try:
            future.set_result(self._scored(response_text))
        except Exception as error:  # noqa: BLE001 (a pool does the same)
            future.set_exception(error)
        return future

    def _scored(self, text: str) -> Score:
        value = self._score(text)
        return Score(value, {"double": value})

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()


class Watched:
    """Compute that does nothing but check, at every pass, that all it waits for was there."""

    def __init__(self, plan: StepPlan, before_run: Callable[[Item], None] = lambda item: None) -> None:
        self._graph = waits(plan)
        self._before_run = before_run
        self.responses: dict[tuple[int, int], Response] = {}
        self.advantages: dict[int, Sequence[float]] = {}
        self.ran: list[Item] = []
        self.dropped: set[Item] = set()
        self.threads: set[int] = set()

    def cost(self, item: Item) -> int:
        return 1

    def drop(self, items: Iterable[Item]) -> None:
        self.dropped |= set(items)

    def run(self, items: Sequence[Item]) -> int:
        self.threads.add(threading.get_ident())
        for item in items:
            self._before_run(item)
            for need in self._graph[item]:
                if need.kind is Kind.DECODE:
                    assert (need.index, need.sample) in self.responses, f"{item} before {need}"
                elif need.kind is Kind.ADVANTAGE:
                    assert need.index in self.advantages, f"{item} before {need}"
                else:
                    assert need in self.ran or need in self.dropped, f"{item} before {need}"
        self.ran += items
        return len(items)
