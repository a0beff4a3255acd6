"""Observe, decide, carry out: against a server that answers, refuses, conflicts and loses replies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollplex_operator import names
from rollplex_operator.decision import Decision, Delete, Note
from rollplex_operator.kube import Kube
from rollplex_operator.observation import Observation
from rollplex_operator.reconcile import Reconciler
from rollplex_operator.resources import JOBS, PODS
from rollplex_operator.store import Key, Store
from rollplex_operator.workqueue import WorkQueue
from tests.unit.operator.small_server import LOST, SmallServer, serving, until

KEY = Key("n", "a")
JOB = JOBS.path("n", "a")
STATUS = f"PUT {JOB}/status"
POD = PODS.path("n", "a-0")
EVENTS = "POST /api/v1/namespaces/n/events"
CREATE = f"POST {PODS.path('n')}"


def pod(name: str, uid: str = "job") -> dict[str, Any]:
    labels = {names.LABEL_JOB: "a", names.LABEL_ATTEMPT: "0", names.LABEL_NODE: name.rpartition("-")[2]}
    owners = [{"uid": uid, "controller": True}]
    metadata = {"name": name, "namespace": "n", "labels": labels, "ownerReferences": owners}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}}


def wants(count: int, seen: list[Observation]) -> Callable[[Observation, float], Decision]:
    """A job of ``count`` pods, whose status says how many there are."""

    def decide(observation: Observation, now: float) -> Decision:
        seen.append(observation)
        have = {each.name for each in observation.pods}
        status = {"nodes": f"{len(have)}/{count}"}
        return Decision(
            status=status if status != observation.job.status else None,
            notes=(Note("Normal", "Counted", f"{len(have)}"),),
            create=tuple(pod(f"a-{i}") for i in range(count) if f"a-{i}" not in have),
        )

    return decide


def run(
    folder: Path,
    server: SmallServer,
    decide: Callable[[Observation, float], Decision],
    until_this: Callable[[], bool],
    meddle: Callable[[Store, Kube], None] = lambda store, kube: None,
) -> Reconciler:
    """Reconcile until something holds. There is no watch: the store knows what replies said."""

    async def main() -> Reconciler:
        async with serving(server, folder) as kube:
            queue: WorkQueue[Key] = WorkQueue()
            store = Store(queue.add)
            reconciler = Reconciler(kube, store, queue, decide, wall=lambda: 7.0)
            store.put(JOBS, server.objects[JOB])
            meddle(store, kube)
            task = asyncio.create_task(reconciler.run())
            try:
                await until(until_this)
                await until(lambda: not queue.running and len(queue) == 0)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            return reconciler

    return asyncio.run(main())


@pytest.fixture
def server() -> SmallServer:
    small = SmallServer()
    metadata = {"name": "a", "namespace": "n", "uid": "job", "generation": 1}
    small.put(JOB, {"apiVersion": JOBS.api_version, "kind": JOBS.kind, "metadata": metadata, "spec": {}})
    return small


def done(server: SmallServer, count: int) -> Callable[[], bool]:
    return lambda: server.objects[JOB].get("status") == {"nodes": f"{count}/{count}"}


def test_status_first_then_pods_then_events_then_rest(server: SmallServer, tmp_path: Path) -> None:
    seen: list[Observation] = []
    run(tmp_path, server, wants(3, seen), done(server, 3))
    assert server.writes() == [STATUS, CREATE, CREATE, CREATE, EVENTS, STATUS, EVENTS]
    assert len(seen[-1].pods) == 3


@pytest.mark.parametrize("fault", [409, 429, 500, 503, LOST])
@pytest.mark.parametrize("call", [STATUS, CREATE, EVENTS])
def test_one_fault_ends_in_the_same_state(server: SmallServer, tmp_path: Path, call: str, fault: int) -> None:
    server.next[call] = [fault]
    run(tmp_path, server, wants(2, []), done(server, 2))
    assert sorted(path for path in server.objects if path.startswith(PODS.path("n"))) == [POD, PODS.path("n", "a-1")]
    assert server.writes().count(CREATE) <= 3


def test_stale_observation_writes_nothing_and_is_looked_at_again(server: SmallServer, tmp_path: Path) -> None:
    seen: list[Observation] = []

    def edit(store: Store, kube: Kube) -> None:
        server.put(JOB, {**server.objects[JOB], "spec": {"nodes": 5}})

    run(tmp_path, server, wants(1, seen), done(server, 1), edit)
    assert server.writes()[:3] == [STATUS, STATUS, CREATE]
    assert [each.job.document["spec"] for each in seen[:2]] == [{}, {"nodes": 5}]


def test_refused_pods_are_asked_for_once_not_all(server: SmallServer, tmp_path: Path) -> None:
    seen: list[Observation] = []
    server.next[CREATE] = [403]

    def decide(observation: Observation, now: float) -> Decision:
        seen.append(observation)
        return Decision(create=() if observation.refusals else tuple(pod(f"a-{i}") for i in range(50)))

    run(tmp_path, server, decide, lambda: len(seen) == 2)
    assert server.writes() == [CREATE]
    (refusal,) = seen[1].refusals
    assert (refusal.kind, refusal.name, refusal.code, refusal.count, refusal.at) == ("Pod", "a-0", 403, 1, 7.0)
    assert refusal.message == "as the test says"


def test_refusals_are_counted_in_a_row_and_end_with_success(server: SmallServer, tmp_path: Path) -> None:
    seen: list[Observation] = []
    server.next[CREATE] = [403, 403, 200]
    run(tmp_path, server, wants(1, seen), done(server, 1))
    assert [[refusal.count for refusal in each.refusals] for each in seen[:4]] == [[], [1], [2], []]


def test_a_taken_name_is_looked_at_and_a_foreign_pod_is_a_refusal(server: SmallServer, tmp_path: Path) -> None:
    seen: list[Observation] = []
    server.put(POD, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a-0", "namespace": "n"}})

    def decide(observation: Observation, now: float) -> Decision:
        seen.append(observation)
        return Decision(create=() if observation.refusals else (pod("a-0"),))

    run(tmp_path, server, decide, lambda: len(seen) == 2)
    assert [refusal.code for refusal in seen[1].refusals] == [409]


def test_a_pod_of_ours_that_was_not_seen_is_found(server: SmallServer, tmp_path: Path) -> None:
    server.put(POD, pod("a-0"))
    reconciler = run(tmp_path, server, wants(1, []), done(server, 1))
    assert [each.name for each in reconciler.store.pods(KEY)] == ["a-0"]


def test_delete_names_the_uid(server: SmallServer, tmp_path: Path) -> None:
    other = server.put(POD, pod("a-0"))

    def decide(observation: Observation, now: float) -> Decision:
        return Decision(
            delete=tuple(Delete("Pod", each.name, each.uid) for each in observation.pods if each.uid == "old")
        )

    def remember(store: Store, kube: Kube) -> None:
        store.put(PODS, {**other, "metadata": {**other["metadata"], "uid": "old"}})

    reconciler = run(tmp_path, server, decide, lambda: f"DELETE {POD}" in server.requests, remember)
    assert POD in server.objects  # the one that has the name now
    assert [each.uid for each in reconciler.store.pods(KEY)] == [other["metadata"]["uid"]]


def test_nodes_are_read_when_asked_for(server: SmallServer, tmp_path: Path) -> None:
    seen: list[Observation] = []
    ready = {"type": "Ready", "status": "True"}
    server.put("/api/v1/nodes/good", {"kind": "Node", "status": {"conditions": [ready]}})
    server.put("/api/v1/nodes/bad", {"kind": "Node", "status": {"conditions": [{**ready, "status": "Unknown"}]}})
    server.next["GET /api/v1/nodes/secret"] = [403]

    def decide(observation: Observation, now: float) -> Decision:
        seen.append(observation)
        return Decision(ask_nodes=frozenset(("good", "bad", "gone", "secret")))

    run(tmp_path, server, decide, lambda: len(seen) >= 2)
    assert seen[1].nodes_ready == {"good": True, "bad": False, "gone": False}
    assert len(seen) == 2
    assert len(server.requests) == 4


def test_nothing_is_decided_before_the_first_lists(server: SmallServer, tmp_path: Path) -> None:
    synced = False

    async def main() -> None:
        nonlocal synced
        async with serving(server, tmp_path) as kube:
            queue: WorkQueue[Key] = WorkQueue()
            store = Store(queue.add)
            reconciler = Reconciler(kube, store, queue, wants(1, []), synced=lambda: synced)
            store.put(JOBS, server.objects[JOB])
            task = asyncio.create_task(reconciler.run())
            await asyncio.sleep(0.3)
            assert server.requests == []
            synced = True
            await until(done(server, 1))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


def test_fenced_process_writes_nothing(server: SmallServer, tmp_path: Path) -> None:
    seen: list[Observation] = []

    def fence(store: Store, kube: Kube) -> None:
        kube.fence = lambda: 0.0

    run(tmp_path, server, wants(1, seen), lambda: bool(seen), fence)
    assert server.requests == []
