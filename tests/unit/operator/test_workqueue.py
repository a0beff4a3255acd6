"""The queue: one worker a key, nothing lost, delays, backoff, age."""

from __future__ import annotations

import asyncio
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from rollplex_operator.workqueue import FIRST_BACKOFF, LARGEST_BACKOFF, WorkQueue, backoff


class Clock:
    """Time that passes when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def make() -> tuple[WorkQueue[str], Clock]:
    clock = Clock()
    return WorkQueue(clock), clock


def test_take_of_an_empty_queue_is_none() -> None:
    queue, _ = make()
    assert queue.take() is None
    assert queue.wait() is None
    assert queue.oldest() == 0


def test_key_added_twice_is_taken_once() -> None:
    queue, _ = make()
    queue.add("a")
    queue.add("a")
    assert [queue.take(), queue.take()] == ["a", None]


def test_key_added_while_worked_on_is_taken_after_that() -> None:
    queue, _ = make()
    queue.add("a")
    assert queue.take() == "a"
    queue.add("a")
    assert queue.take() is None
    queue.done("a")
    assert queue.take() == "a"


def test_key_that_is_worked_on_does_not_hold_back_others() -> None:
    queue, _ = make()
    queue.add("a")
    queue.take()
    queue.add("a")
    queue.add("b")
    assert queue.take() == "b"


def test_delays_the_earliest_wins() -> None:
    queue, clock = make()
    queue.add("a", 10)
    queue.add("a", 5)
    queue.add("a", 20)
    assert queue.wait() == 5
    clock.now += 4.9
    assert queue.take() is None
    clock.now += 0.2
    assert queue.take() == "a"
    queue.done("a")
    clock.now += 100
    assert queue.take() is None


def test_backoff_grows_to_its_limit_and_begins_anew_after_success() -> None:
    queue, _ = make()
    assert [queue.failed("a") for _ in range(3)] == [FIRST_BACKOFF, 2 * FIRST_BACKOFF, 4 * FIRST_BACKOFF]
    assert backoff(1000) == LARGEST_BACKOFF
    assert queue.failed("a", at_least=50) == 50
    queue.succeeded("a")
    assert queue.failed("a") == FIRST_BACKOFF


def test_oldest_counts_due_and_running_keys_not_delayed_ones() -> None:
    queue, clock = make()
    queue.add("later", 1000)
    clock.now += 10
    assert queue.oldest() == 0
    queue.add("a")
    clock.now += 3
    assert queue.oldest() == 3
    queue.take()
    assert queue.oldest() == 0
    clock.now += 7
    assert queue.oldest() == 7


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.sampled_from(["add", "take", "done", "pass"]))))
def test_no_key_is_lost_and_none_is_taken_twice_at_a_time(steps: list[tuple[str, int, str]]) -> None:
    queue, clock = make()
    running: list[str] = []
    owed: Counter[str] = Counter()
    for key, number, what in steps:
        if what == "add":
            queue.add(key, number)
            owed[key] = 1
        elif what == "pass":
            clock.now += number
        elif what == "take" and (taken := queue.take()) is not None:
            assert taken not in running
            assert owed[taken]
            owed[taken] = 0
            running.append(taken)
        elif what == "done" and running:
            queue.done(running.pop(0))
    for key in running:
        queue.done(key)
    clock.now += 100
    rest = []
    while (taken := queue.take()) is not None:
        rest.append(taken)
    assert sorted(rest) == sorted(key for key, count in owed.items() if count)


def test_run_works_in_parallel_within_its_bound_and_survives_a_bug() -> None:
    queue: WorkQueue[int] = WorkQueue()
    at_once, most, seen = 0, 0, []

    async def work(key: int) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.01)
        at_once -= 1
        seen.append(key)
        if seen.count(3) == 1 and key == 3:
            raise RuntimeError("a bug")
        queue.succeeded(key)

    async def main() -> None:
        for key in range(9):
            queue.add(key)
        task = asyncio.create_task(queue.run(work, parallel=4))
        async with asyncio.timeout(5):
            while len(seen) < 10:
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    assert most == 4
    assert Counter(seen) == {**dict.fromkeys(range(9), 1), 3: 2}


def test_run_when_cancelled_waits_for_what_it_began() -> None:
    queue: WorkQueue[str] = WorkQueue()
    ended = []

    async def work(key: str) -> None:
        await asyncio.sleep(0.1)
        ended.append(key)

    async def main() -> None:
        queue.add("a")
        task = asyncio.create_task(queue.run(work, parallel=4))
        await asyncio.sleep(0.02)
        queue.add("b", 0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    assert ended == ["a"]
