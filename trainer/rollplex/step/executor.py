"""Runs the work items of one step on their lanes, in the order that a schedule allows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from rollplex.algorithms.base import Advantage, Outcome
from rollplex.batch import Prompt, Response
from rollplex.reward.pool import Score
from rollplex.rollout.protocol import Rollout
from rollplex.step.compute import StepCompute
from rollplex.step.lanes import DecodeLane
from rollplex.step.progress import Progress
from rollplex.step.schedule import Schedule
from rollplex.step.timeline import Timeline
from rollplex.step.work import Item, Kind, StepPlan, idle_items, waits

_CHECK_SECONDS = 0.2  # between two looks at what nobody notifies the compute lane of


class Rewards(Protocol):
    """What a step needs of a reward pool."""

    def submit(self, response_text: str, answer: Any, row: Mapping[str, Any], tokens: int) -> Future[Score]:
        """Score one response of ``tokens`` tokens; the future may end on any thread."""


@dataclass
class StepState:
    """What the lanes share; every access holds the executor's lock."""

    responses: dict[tuple[int, int], Response] = field(default_factory=dict)  # by (group, sample)
    scores: dict[tuple[int, int], Score] = field(default_factory=dict)
    advantages: dict[int, Sequence[float]] = field(default_factory=dict)  # by group
    filtered: set[int] = field(default_factory=set)  # groups that the algorithm takes out of its batch
    skipped: set[int] = field(default_factory=set)  # groups without a loss, whose further passes are left out


class Executor:
    """One step's execution. The compute lane is the thread that calls :meth:`run`."""

    def __init__(
        self,
        plan: StepPlan,
        schedule: Schedule,
        prompts: Sequence[Prompt],
        compute: StepCompute,
        rollout: Rollout,
        rewards: Rewards,
        timeline: Timeline,
        advantages: Callable[[Sequence[Outcome]], list[Advantage]],
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """
        ``advantages`` answers outcomes of whole groups (of the batch, if the plan says so) one for one. ``check`` is
        called ahead of every item until the update, and while there is none: what it raises ends the step.
        """
        self._plan = plan
        self._schedule = schedule
        self._prompts = prompts
        self._compute = compute
        self._rewards = rewards
        self._timeline = timeline
        self._advantages = advantages
        self._check = check
        self._changed = threading.Condition()
        self._progress = Progress(waits(plan))
        self._error: BaseException | None = None
        self._decode = DecodeLane(rollout, timeline, self._decoded, self._decode_ended)
        self._decoding = True
        self._over = False
        self.state = StepState()
        compute.responses = self.state.responses
        compute.advantages = self.state.advantages

    @property
    def decode_tokens(self) -> int:
        """Response tokens that the engine made."""
        return self._decode.tokens

    def run(self, finish: Callable[[Kind], None]) -> None:
        """Work until the step is complete. ``finish`` does the update and the publish, both with the engine idle.

        Raises whatever a lane or a reward raised, once the decode lane has come to rest.
        """
        with self._changed:
            for item in list(self._progress.ready_of(Kind.DECODE)):
                self._progress.start(item)
        self._decode.start()
        try:
            while (items := self._next()) is not None:
                self._work(items, finish)
        except BaseException:
            self._decode.stop()
            raise
        finally:
            with self._changed:
                self._over = True
        self._decode.join()

    def _work(self, items: Sequence[Item], finish: Callable[[Kind], None]) -> None:
        kind = items[0].kind
        label = ", ".join(str(item.index) for item in items) if len(items) > 1 else str(items[0])
        lane = "cpu" if kind is Kind.ADVANTAGE else "compute"
        with self._timeline.span(lane, kind.value, label) as span:
            if kind is Kind.ADVANTAGE:
                self._advance(items)
            elif kind in (Kind.UPDATE, Kind.PUBLISH):
                finish(kind)
            else:
                span.tokens = self._compute.run(items)
        with self._changed:
            for item in items:
                self._progress.complete(item)
            if kind is Kind.ADVANTAGE and self.state.skipped:
                # no compute item is at work: advantages are worked out on the compute lane's thread
                idle = idle_items(self._plan, self.state.skipped)
                self._progress.skip(idle)
                self._compute.drop(idle)

    def _next(self) -> list[Item] | None:
        """The items to work on now; waits while other lanes must deliver first. None: the step is complete."""
        with self._changed:
            while True:
                if self._error is not None:
                    raise self._error
                if self._progress.done:
                    return None
                if not self._progress.all_complete(Kind.UPDATE):  # it works in place: there is no way back from it
                    self._check()
                items = sorted(self._progress.ready_of(Kind.ADVANTAGE))
                items = items or self._schedule.next_pass(self._progress, self._compute.cost)
                if items:
                    for item in items:
                        self._progress.start(item)
                    return items
                idle = not self._decoding and self._progress.all_complete(Kind.DECODE, Kind.REWARD)
                assert not idle, f"nothing may start and nobody will deliver: {sorted(self._progress.ready)[:5]}"
                self._changed.wait(_CHECK_SECONDS)

    def _advance(self, items: Sequence[Item]) -> None:
        with self._changed:
            outcomes = [self._outcome(item.index) for item in items]
        found = self._advantages(outcomes)
        with self._changed:
            for item, advantage in zip(items, found, strict=True):
                self.state.advantages[item.index] = advantage.values
                if not advantage.counts:
                    self.state.filtered.add(item.index)
                if not advantage.counts or (self._plan.skip_zero and not any(advantage.values)):
                    self.state.skipped.add(item.index)

    def _outcome(self, group: int) -> Outcome:
        keys = [(group, sample) for sample in range(self._plan.group_sizes[group])]
        lengths = tuple(len(self.state.responses[key].token_ids) for key in keys)
        if self._plan.advantage == "none":
            return Outcome((), lengths)
        return Outcome(tuple(self.state.scores[key].value for key in keys), lengths)

    def _decoded(self, responses: Sequence[Response]) -> None:
        for response in responses:
            key = (response.prompt, response.sample)
            with self._changed:
                self.state.responses[key] = response
                self._progress.complete(Item(Kind.DECODE, *key))
                self._progress.start(Item(Kind.REWARD, *key))
                self._changed.notify_all()
            prompt = self._prompts[response.prompt]
            future = self._rewards.submit(response.text, prompt.answer, prompt.row, len(response.token_ids))
            future.add_done_callback(partial(self._rewarded, key, time.perf_counter()))

    def _rewarded(self, key: tuple[int, int], start: float, future: Future[Score]) -> None:
        item = Item(Kind.REWARD, *key)
        with self._changed:
            if self._over:
                return  # the step has failed meanwhile, and the timeline is another's
            try:
                self._timeline.record("cpu", "reward", str(item), start, time.perf_counter())
                self.state.scores[key] = future.result()
                self._progress.complete(item)
            except BaseException as error:  # noqa: BLE001 (raised again in the compute lane)
                self._error = self._error or error
            self._changed.notify_all()

    def _decode_ended(self, error: BaseException | None) -> None:
        with self._changed:
            self._decoding = False
            if error is None and not self._progress.all_complete(Kind.DECODE):
                error = RuntimeError("the engine has nothing left to do, but responses are missing")
            self._error = self._error or error
            self._changed.notify_all()
