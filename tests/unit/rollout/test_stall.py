"""Case 32: an engine that never answers one request of many. The source of steps is scripted, the clock is ours."""

import logging

import pytest

from rollplex.rollout.stall import StallError, StallWatch


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def step(watch: StallWatch, clock: Clock, progressed: list[str], seconds: float = 0.5) -> None:
    """An engine step of so many seconds that gave tokens to these requests."""
    watch.begin()
    clock.now += seconds
    watch.end(progressed)


def test_silent_request_is_logged_counted_and_fails_the_step(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    watch = StallWatch(10.0, clock)
    watch.add(["s1-p0-i0", "s1-p0-i1", "s1-p1-i0"])
    step(watch, clock, ["s1-p0-i0", "s1-p0-i1", "s1-p1-i0"])
    with caplog.at_level(logging.WARNING):
        for _ in range(9):
            step(watch, clock, ["s1-p0-i0", "s1-p1-i0"])
        assert (watch.stalled, caplog.messages) == (0, [])
        step(watch, clock, ["s1-p0-i0", "s1-p1-i0"])
        assert watch.stalled == 1
        assert caplog.messages == ["rollout request s1-p0-i1 has got no token for 5.0 s"]
        for _ in range(9):
            step(watch, clock, ["s1-p0-i0", "s1-p1-i0"])
        assert len(caplog.messages) == 1, "logged once"
    with pytest.raises(StallError, match=r"no token for 10 s to: s1-p0-i1; raise rollout.stallSeconds") as caught:
        step(watch, clock, ["s1-p0-i0", "s1-p1-i0"])
    assert caught.value.requests == ("s1-p0-i1",)


def test_token_ends_the_wait(clock: Clock) -> None:
    watch = StallWatch(10.0, clock)
    watch.add(["a", "b"])
    step(watch, clock, ["a", "b"])
    for _ in range(14):
        step(watch, clock, ["a"])
    assert watch.stalled == 1
    step(watch, clock, ["b"])
    assert watch.stalled == 0
    for _ in range(19):
        step(watch, clock, ["a"])


def test_queue_is_not_a_stall_while_others_decode(clock: Clock) -> None:
    watch = StallWatch(10.0, clock)
    watch.add(["running", "queued"])
    for _ in range(100):
        step(watch, clock, ["running"])
    assert watch.stalled == 0
    watch.drop(["running"])
    for _ in range(19):
        step(watch, clock, [])
    with pytest.raises(StallError, match="queued"):
        step(watch, clock, [])


def test_steps_of_no_time_count_by_the_time_between_them(clock: Clock) -> None:
    """An engine that lost a request returns at once; the loop around it passes the time."""
    watch = StallWatch(10.0, clock)
    watch.add(["lost"])
    for _ in range(11):
        step(watch, clock, [], seconds=0.0)
        clock.now += 0.9
    with pytest.raises(StallError):
        step(watch, clock, [], seconds=0.1)


def test_pause_of_the_caller_is_not_a_stall(clock: Clock) -> None:
    watch = StallWatch(10.0, clock)
    watch.add(["a"])
    step(watch, clock, ["a"])
    clock.now += 3600
    step(watch, clock, [])
    assert watch.stalled == 0


def test_finished_and_aborted_are_forgotten(clock: Clock) -> None:
    watch = StallWatch(10.0, clock)
    watch.add(["a", "b"])
    step(watch, clock, ["a", "b"])
    for _ in range(12):
        step(watch, clock, [])
    assert watch.stalled == 2
    watch.drop(["a", "b"])
    assert watch.stalled == 0
    for _ in range(100):
        step(watch, clock, [])


def test_limit_must_be_positive() -> None:
    with pytest.raises(ValueError, match="must be positive, got 0"):
        StallWatch(0)
