"""kopf's watches on a server that ends them, falls silent, forgets and fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from rollplex_operator import names
from rollplex_operator.resources import JOBS, PODS
from rollplex_operator.store import Key, Store
from rollplex_operator.watching import CHUNK, Watching
from tests.unit.operator.small_server import serving, until
from tests.unit.operator.watched_server import KINDS, WatchedServer

KEY = Key("n", "a")
Then = Callable[[Watching, Store], Awaitable[None]]


def run(
    server: WatchedServer,
    folder: Path,
    then: Then,
    namespaces: Sequence[str] | None = None,
    inactivity: float = 70.0,
) -> None:
    """Watch, and do ``then`` once the first lists are in."""

    async def main() -> None:
        async with serving(server, folder) as kube:
            store = Store(lambda key: None)
            watching = Watching(kube, store, namespaces, inactivity)
            task = asyncio.create_task(watching.run(KINDS))
            try:
                await until(lambda: watching.synced or task.done(), 20.0)
                assert not task.done(), task.result()
                await then(watching, store)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


@pytest.fixture
def server() -> WatchedServer:
    made = WatchedServer()
    made.change(JOBS, "a", spec={})
    made.change(PODS, "a-0")
    return made


def pods(store: Store) -> list[str]:
    return [pod.name for pod in store.pods(KEY)]


def test_first_lists_are_whole_before_it_is_synced(server: WatchedServer, tmp_path: Path) -> None:
    for number in range(1, 3 * CHUNK):
        server.change(PODS, f"a-{number}")

    async def then(watching: Watching, store: Store) -> None:
        assert store.job(KEY) is not None
        assert len(pods(store)) == 3 * CHUNK

    run(server, tmp_path, then)
    lists = [query for path, query in server.queries if path == PODS.path(None) and "watch" not in query]
    assert [query.get("continue") for query in lists] == [None, str(CHUNK), str(2 * CHUNK)]


def test_server_selects_what_is_watched(server: WatchedServer, tmp_path: Path) -> None:
    async def then(watching: Watching, store: Store) -> None:
        await until(lambda: sum("watch" in query for _, query in server.queries) == 2)

    run(server, tmp_path, then)
    assert len(server.queries) == 4
    for path, query in server.queries:
        assert query.get("labelSelector") == (names.LABEL_JOB if path == PODS.path(None) else None)


def test_events_are_in_the_store(server: WatchedServer, tmp_path: Path) -> None:
    async def then(watching: Watching, store: Store) -> None:
        server.change(PODS, "a-1", "ADDED")
        await until(lambda: pods(store) == ["a-0", "a-1"])
        server.change(PODS, "a-1", status={"phase": "Running"})
        await until(lambda: store.pods(KEY)[1].phase == "Running")
        server.change(PODS, "a-1", "DELETED", status={"phase": "Failed"})
        await until(lambda: pods(store) == ["a-0"])
        assert [pod.phase for pod in store.gone(KEY)] == ["Failed"]  # as it was last

    run(server, tmp_path, then)
    assert server.writes() == []


def test_what_vanished_while_a_watch_had_expired_is_gone(server: WatchedServer, tmp_path: Path) -> None:
    server.change(PODS, "a-1")

    async def then(watching: Watching, store: Store) -> None:
        server.silent = True
        server.change(PODS, "a-1", "DELETED")
        server.silent = False
        server.tell(PODS, "ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
        await until(lambda: pods(store) == ["a-0"], 10.0)
        server.change(PODS, "a-2", "ADDED")
        await until(lambda: pods(store) == ["a-0", "a-2"], 10.0)

    run(server, tmp_path, then)


def test_watch_that_ends_is_begun_anew(server: WatchedServer, tmp_path: Path) -> None:
    async def then(watching: Watching, store: Store) -> None:
        def watches() -> int:
            return sum("watch" in query for _, query in server.queries)

        before = watches()
        server.end_watches()
        await until(lambda: watches() >= before + 2, 10.0)
        server.change(PODS, "a-1", "ADDED")
        await until(lambda: pods(store) == ["a-0", "a-1"], 10.0)

    run(server, tmp_path, then)


def test_silent_watch_is_listed_and_stays_silent_for_all_to_see(server: WatchedServer, tmp_path: Path) -> None:
    async def then(watching: Watching, store: Store) -> None:
        server.silent = True
        server.change(PODS, "a-0", "DELETED")
        server.change(PODS, "a-1", "ADDED")
        await until(lambda: pods(store) == ["a-1"], 15.0)
        ages = {name: age for name, _, age in watching.ages()}
        assert ages.keys() == {"pods", "rollplexjobs.rollplex.io"}
        assert ages["pods"] > 0.4

    run(server, tmp_path, then, inactivity=0.4)


def test_bookmark_is_a_sign_of_life(server: WatchedServer, tmp_path: Path) -> None:
    async def then(watching: Watching, store: Store) -> None:
        await until(lambda: sum("watch" in query for _, query in server.queries) == 2)
        before = [watch.heard for watch in watching.watches]
        for kind in KINDS:
            about = {"apiVersion": kind.api_version, "kind": kind.kind}
            server.tell(kind, "BOOKMARK", {**about, "metadata": {"resourceVersion": "200"}})
        await until(lambda: all(watch.heard > was for watch, was in zip(watching.watches, before, strict=True)))
        assert pods(store) == ["a-0"]

    run(server, tmp_path, then)


@pytest.mark.parametrize("code", [403, 500, 503])
def test_list_that_fails_is_tried_again(server: WatchedServer, tmp_path: Path, code: int) -> None:
    server.next[f"GET {PODS.path(None)}"] = [code, code, 200]

    async def then(watching: Watching, store: Store) -> None:
        assert pods(store) == ["a-0"]

    run(server, tmp_path, then)


def test_namespaced_watches_ask_for_nothing_else(server: WatchedServer, tmp_path: Path) -> None:
    server.change(PODS, "a-7", namespace="foreign")

    async def then(watching: Watching, store: Store) -> None:
        assert {watch.namespace for watch in watching.watches} == {"n", "m"}
        assert [pod.name for pod in store.pods(Key("foreign", "a"))] == []
        server.change(PODS, "a-1", "ADDED")
        await until(lambda: pods(store) == ["a-0", "a-1"])

    run(server, tmp_path, then, namespaces=["n", "m"])
    assert {path for path, _ in server.queries} == {kind.path(space) for kind in KINDS for space in ("n", "m")}
