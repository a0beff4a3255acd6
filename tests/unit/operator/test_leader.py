"""The lease: one holder, taken over when it is silent, given back, and a fence that never outlasts it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollplex_operator import leader as module
from rollplex_operator.kube import Kube
from rollplex_operator.leader import DURATION, LEASES, RENEW_DEADLINE, Leader, LostError
from tests.unit.operator.small_server import LOST, SmallServer, serving

LEASE = LEASES.path("n", "rollplex-operator")


class Clock:
    """Time that passes when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def make(kube: Kube, clock: Clock, identity: str) -> Leader:
    return Leader(kube, "n", "rollplex-operator", identity, clock)


def play(folder: Path, scene: Callable[[SmallServer, Kube, Clock], Awaitable[None]]) -> SmallServer:
    server = SmallServer()

    async def main() -> None:
        async with serving(server, folder) as kube:
            await scene(server, kube, Clock())

    asyncio.run(main())
    return server


def holder(server: SmallServer) -> str:
    return str(server.objects[LEASE]["spec"]["holderIdentity"])


def test_first_one_leads_and_the_second_waits_until_it_is_silent(tmp_path: Path) -> None:
    async def scene(server: SmallServer, kube: Kube, clock: Clock) -> None:
        first, second = make(kube, clock, "first"), make(kube, clock, "second")
        assert await first._try()
        assert not await second._try()
        assert second.seen
        for _ in range(20):  # as long as the first renews
            clock.now += 2
            assert await first._try()
            assert not await second._try()
        clock.now += DURATION - 1
        assert not await second._try()
        assert not first.leading
        clock.now += 2
        assert await second._try()
        assert not await first._try()
        assert holder(server) == "second"
        assert server.objects[LEASE]["spec"]["leaseTransitions"] == 1

    play(tmp_path, scene)


def test_given_back_it_is_taken_at_once(tmp_path: Path) -> None:
    async def scene(server: SmallServer, kube: Kube, clock: Clock) -> None:
        first, second = make(kube, clock, "first"), make(kube, clock, "second")
        await first.acquire()
        assert not await second._try()
        await first.release()
        assert first.fence() == 0
        assert await second._try()

    play(tmp_path, scene)


def test_two_that_see_an_expired_lease_do_not_both_take_it(tmp_path: Path) -> None:
    async def scene(server: SmallServer, kube: Kube, clock: Clock) -> None:
        leaders = [make(kube, clock, str(number)) for number in range(5)]
        results = await asyncio.gather(*(each._try() for each in leaders))
        assert sum(results) == 1
        assert holder(server) == str(results.index(True))

    play(tmp_path, scene)


def test_reply_that_was_lost_is_no_renewal_and_the_next_one_is(tmp_path: Path) -> None:
    async def scene(server: SmallServer, kube: Kube, clock: Clock) -> None:
        leader = make(kube, clock, "first")
        await leader.acquire()
        clock.now += 2
        server.next[f"PUT {LEASE}"] = [LOST]
        assert not await leader._try()
        assert leader.fence() == DURATION - 2
        for _ in range(2):  # a conflict with itself, then a renewal
            renewed = await leader._try()
        assert renewed
        assert leader.fence() == DURATION

    play(tmp_path, scene)


def test_hold_ends_when_another_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY", 0.01)

    async def scene(server: SmallServer, kube: Kube, clock: Clock) -> None:
        leader = make(kube, clock, "first")
        await leader.acquire()
        spec = server.objects[LEASE]["spec"]
        server.put(LEASE, {**server.objects[LEASE], "spec": {**spec, "holderIdentity": "thief"}})
        with pytest.raises(LostError, match="thief holds the lease"):
            await leader.hold()
        assert not leader.leading

    play(tmp_path, scene)


def test_hold_ends_when_the_server_does_not_answer_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY", 0.01)

    async def scene(server: SmallServer, kube: Kube, clock: Clock) -> None:
        leader = make(kube, clock, "first")
        await leader.acquire()
        server.next[f"PUT {LEASE}"] = [500] * 1000
        held = asyncio.create_task(leader.hold())
        await asyncio.sleep(0.1)
        assert not held.done()
        clock.now += RENEW_DEADLINE
        with pytest.raises(LostError, match="could not be renewed for 10 s"):
            await held

    play(tmp_path, scene)


@given(st.floats(0, 100))
def test_no_write_outlasts_the_lease(age: float) -> None:
    clock = Clock()
    leader = make(None, clock, "first")  # type: ignore[arg-type]
    leader._renewed = clock.now
    clock.now += age
    if leader.leading:
        assert age < RENEW_DEADLINE
        assert age + leader.fence() <= DURATION + 1e-6
    else:
        assert age >= RENEW_DEADLINE
