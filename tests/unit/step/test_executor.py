"""The executor: lanes in threads, each item once and in time, and what a fault in any of them leads to."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any

import pytest

from rollplex.algorithms.base import Advantage
from rollplex.algorithms.grpo import group_advantages
from rollplex.reward.pool import Score
from rollplex.rollout.stall import StallError, StallWatch
from rollplex.step.executor import Executor
from rollplex.step.plan import plan_step
from rollplex.step.schedule import Schedule
from rollplex.step.timeline import Timeline
from rollplex.step.work import Item, Kind, waits
from tests.unit.step.doubles import OneByOne, Rewards, Watched
from tests.unit.step.plans import make_prompt

PROMPTS = [make_prompt("a", 4, 1), make_prompt("b", 1), make_prompt("c", 4, 1, 2), make_prompt("d", 5)]
GROUP = 3
PLAN = plan_step(PROMPTS, GROUP, share_prefix=True, reference=True, frozen_tower=False, shared_tower=False)
SAMPLES = len(PROMPTS) * GROUP


class FaultError(Exception):
    """What a test puts in."""


def fault(*_: Any) -> None:
    raise FaultError("put in by the test")


def nothing(*_: Any) -> None:
    """Does nothing."""


class Bench:
    """An executor on doubles."""

    def __init__(
        self,
        *,
        mode: str = "stream",
        before_step: Callable[[int], None] = nothing,
        before_run: Callable[[Item], None] = nothing,
        rewards: Any = None,
        rollout: Any = None,
        order: int = 0,
    ) -> None:
        self.rollout = rollout or OneByOne(PLAN.group_sizes, order, before_step)
        self.compute = Watched(PLAN, before_run)
        self.timeline = Timeline()
        self.finished: list[Kind] = []
        self.executor = Executor(
            PLAN,
            Schedule(mode, run_ahead=2, pack_tokens=2),
            PROMPTS,
            self.compute,  # type: ignore[arg-type]
            self.rollout,
            rewards or Rewards(),
            self.timeline,
            lambda found: [Advantage(tuple(group_advantages(outcome.rewards))) for outcome in found],
        )

    def run(self, finish: Callable[[Kind], None] = nothing) -> None:
        def seen(kind: Kind) -> None:
            assert self.rollout.unfinished == 0, f"{kind} with the engine at work"
            finish(kind)
            self.finished.append(kind)

        self.executor.run(seen)


@pytest.fixture(autouse=True)
def every_decode_lane_comes_to_rest() -> Iterator[None]:
    yield
    assert [thread.name for thread in threading.enumerate() if thread.name == "decode-lane"] == []


@pytest.mark.parametrize("mode", ["serial", "overlap", "stream"])
@pytest.mark.parametrize("seed", range(5))
def test_every_item_runs_once_and_in_time(mode: str, seed: int) -> None:
    """Lanes, rewards and compute at random speeds."""
    delays = random.Random(seed)

    def dawdle(*_: Any) -> None:
        time.sleep(delays.choice([0, 0, 0.001, 0.003]))

    def score(text: str) -> float:
        dawdle()
        return delays.random()

    rewards = Rewards(score, threads=3)
    bench = Bench(mode=mode, before_step=dawdle, before_run=dawdle, rewards=rewards, order=seed)
    bench.run()
    rewards.close()
    lanes = (Kind.DECODE, Kind.REWARD, Kind.ADVANTAGE, Kind.UPDATE, Kind.PUBLISH)
    assert sorted(bench.compute.ran) == sorted(item for item in waits(PLAN) if item.kind not in lanes)
    assert bench.compute.threads == {threading.get_ident()}, "the compute lane is the caller's thread"
    assert bench.finished == [Kind.UPDATE, Kind.PUBLISH]
    state = bench.executor.state
    assert len(state.responses) == len(state.scores) == SAMPLES
    assert state.advantages.keys() == set(range(len(PROMPTS)))
    assert bench.executor.decode_tokens == sum(len(r.token_ids) for r in state.responses.values())
    for group, found in state.advantages.items():
        assert list(found) == group_advantages([state.scores[group, i].value for i in range(GROUP)])


def test_the_timeline_has_every_item_on_its_lane() -> None:
    bench = Bench()
    bench.run()
    step = bench.timeline.finish(1)
    assert len(step.lane("decode")) == SAMPLES
    kinds = [event.kind for event in step.lane("cpu")]
    assert kinds.count("reward") == SAMPLES
    assert "advantage" in kinds
    assert {event.kind for event in step.lane("compute")} == {
        "encode", "ref_prefix", "actor_prefix", "ref_suffix", "actor_suffix",
        "prefix_backward", "encode_backward", "update", "publish",
    }  # fmt: skip


@pytest.mark.parametrize("mode", ["serial", "overlap", "stream"])
@pytest.mark.parametrize("at", [0, 5, SAMPLES - 1])
def test_a_fault_of_the_engine_reaches_the_caller(mode: str, at: int) -> None:
    bench = Bench(mode=mode, before_step=lambda step: fault() if step == at else None)
    with pytest.raises(FaultError):
        bench.run()
    assert bench.finished == []
    assert bench.rollout.steps == at, "nobody steps an engine that has failed"


@pytest.mark.parametrize("kind", [k for k in Kind if k not in (Kind.DECODE, Kind.REWARD, Kind.ADVANTAGE)])
def test_a_fault_of_any_compute_item_reaches_the_caller(kind: Kind) -> None:
    def at_kind(item: Item | Kind) -> None:
        if kind in (item, getattr(item, "kind", None)):
            fault()

    bench = Bench(before_run=at_kind)
    with pytest.raises(FaultError):
        bench.run(finish=at_kind)
    assert bench.finished == ([Kind.UPDATE] if kind is Kind.PUBLISH else [])
    assert kind not in {item.kind for item in bench.compute.ran}


def test_a_fault_of_compute_stops_the_decode_lane_after_the_step_in_flight() -> None:
    stepping, failed = threading.Event(), threading.Event()

    def hold(step: int) -> None:
        if step == 2:
            stepping.set()
            failed.wait()

    def fail(item: Item) -> None:
        stepping.wait()
        threading.Timer(0.05, failed.set).start()
        fault()

    bench = Bench(before_step=hold, before_run=fail)
    with pytest.raises(FaultError):
        bench.run()
    assert bench.rollout.steps == 3
    assert bench.rollout.unfinished == SAMPLES - 3, "what is unfinished is the caller's to abort"


class NoRewards:
    """A pool that is closed."""

    def submit(self, *_: Any) -> Future[Score]:
        raise FaultError("the pool is closed")


class CancelledRewards:
    """A pool that is closed while a reward is on its way."""

    def submit(self, *_: Any) -> Future[Score]:
        future: Future[Score] = Future()
        threading.Timer(0.01, future.cancel).start()
        return future


def later(text: str) -> float:
    time.sleep(0.01)
    raise FaultError(text)


@pytest.mark.parametrize(
    ("rewards", "error"),
    [
        (Rewards(fault), FaultError),  # type: ignore[arg-type]
        (Rewards(later, threads=2), FaultError),
        (NoRewards(), FaultError),
        (CancelledRewards(), CancelledError),
    ],
    ids=["at once", "later", "no pool", "cancelled"],
)
@pytest.mark.parametrize("mode", ["serial", "stream"])
def test_a_fault_of_a_reward_reaches_the_caller(rewards: Any, error: type[BaseException], mode: str) -> None:
    bench = Bench(mode=mode, rewards=rewards)
    with pytest.raises(error):
        bench.run()
    assert bench.finished == []


def test_a_fault_of_an_advantage_reaches_the_caller() -> None:
    bench = Bench()
    bench.executor._advantages = fault  # type: ignore[assignment]
    with pytest.raises(FaultError):
        bench.run()


def test_an_engine_that_forgets_samples_is_an_error() -> None:
    bench = Bench()
    bench.rollout._waiting.pop()
    with pytest.raises(RuntimeError, match="the engine has nothing left to do, but responses are missing"):
        bench.run()


class Stuck(OneByOne):
    """An engine that never answers one request; the product's own watch looks after it, on a clock of the test's."""

    def __init__(self) -> None:
        super().__init__(PLAN.group_sizes)
        self._now = 0.0
        self._watch = StallWatch(10.0, lambda: self._now)
        self._watch.add([self._name(response) for response in self._waiting])
        self._stuck = self._waiting.pop(0)

    @staticmethod
    def _name(response: Any) -> str:
        return f"s1-p{response.prompt}-i{response.sample}"

    @property
    def unfinished(self) -> int:
        return len(self._waiting) + 1

    def step(self) -> list[Any]:
        self._watch.begin()
        self._now += 0.5
        done = [self._waiting.pop()] if self._waiting else []
        self._watch.drop(map(self._name, done))
        self._watch.end([])
        return done


def test_a_request_that_is_never_answered_fails_the_step_by_name(caplog: pytest.LogCaptureFixture) -> None:
    rollout = Stuck()
    name = rollout._name(rollout._stuck)
    bench = Bench(rollout=rollout)
    with pytest.raises(StallError, match=name) as caught:
        bench.run()
    assert caught.value.requests == (name,)
    assert f"rollout request {name} has got no token for 5.0 s" in caplog.text
    assert bench.finished == []


@pytest.fixture
def ctrl_c_interrupts() -> Iterator[None]:
    """Also where the tests run in the background of a shell, which ignores SIGINT there."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c_interrupts")
def test_ctrl_c_while_the_caller_waits_for_decode() -> None:
    """The main thread waits for a response; SIGINT ends the wait, and the engine's step in flight is let finish."""
    waiting, interrupted = threading.Event(), threading.Event()

    def slow(step: int) -> None:
        waiting.set()
        interrupted.wait(5.0)

    def interrupt() -> None:
        waiting.wait(5.0)
        time.sleep(0.1)  # all that may run under decode has run: the caller waits
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
        interrupted.set()

    bench = Bench(before_step=slow)
    sender = threading.Thread(target=interrupt)
    sender.start()
    with pytest.raises(KeyboardInterrupt):
        bench.run()
    sender.join()
    assert bench.rollout.steps == 1
    assert {item.kind for item in bench.compute.ran} == {Kind.ENCODE, Kind.REF_PREFIX, Kind.ACTOR_PREFIX}
