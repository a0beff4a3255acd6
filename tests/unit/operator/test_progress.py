"""Reading /status: from a real server on a loopback address, with answers good and bad."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest
from aiohttp import web

from rollplex_operator import names
from rollplex_operator import progress as module
from rollplex_operator.progress import LARGEST, ProgressReader
from rollplex_operator.resources import JOBS, PODS
from rollplex_operator.store import Key, Store

KEY = Key("n", "a")
ADDRESS = "127.0.0.1"


def filled(phase: str = "Running", job_phase: str = "Running") -> Store:
    store = Store(lambda key: None)
    metadata = {"name": "a", "namespace": "n", "uid": "job", "resourceVersion": "1"}
    job = {"apiVersion": JOBS.api_version, "kind": JOBS.kind, "metadata": metadata, "status": {"phase": job_phase}}
    store.put(JOBS, job)
    labels = {names.LABEL_JOB: "a", names.LABEL_NODE: "0", names.LABEL_ATTEMPT: "0"}
    owners = [{"uid": "job", "controller": True}]
    status = {
        "phase": phase,
        "podIP": ADDRESS,
        "containerStatuses": [{"name": "trainer", "state": {"running": {}}}],
    }
    store.put(
        PODS,
        {
            "metadata": {**metadata, "uid": "pod", "name": "a-0", "labels": labels, "ownerReferences": owners},
            "spec": {"containers": [{"name": "trainer"}]},
            "status": status,
        },
    )
    return store


def read(store: Store, answers: list[bytes], monkeypatch: pytest.MonkeyPatch) -> tuple[ProgressReader, list[Key]]:
    """Read once for each answer."""
    changed: list[Key] = []
    reader = ProgressReader(store, changed.append, wall=lambda: 5.0)

    async def main() -> None:
        async def answer(_: web.BaseRequest) -> web.Response:
            return web.Response(body=answers.pop(0))

        runner = web.ServerRunner(web.Server(answer))
        await runner.setup()
        await web.TCPSite(runner, ADDRESS, 0).start()
        monkeypatch.setattr(module, "METRICS_PORT", runner.addresses[0][1])
        async with aiohttp.ClientSession() as session:
            while answers:
                pods = list(module.heads_of_running(store))
                await reader.read(session, pods)
                if not pods:
                    break
        await runner.cleanup()

    asyncio.run(main())
    return reader, changed


def test_report_that_is_new_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    report = {"attempt": 0, "step": 3}
    reader, changed = read(filled(), [json.dumps(report).encode()] * 3, monkeypatch)
    assert changed == [KEY]
    assert (reader.last[KEY].report, reader.last[KEY].pod_uid, reader.last[KEY].read) == (report, "pod", 5.0)


@pytest.mark.parametrize(
    "answer",
    [b"", b"{", b"[1]", b"null", b"\xff\xfe", b'{"a": "' + b"x" * LARGEST + b'"}', b"[" * 50000],
    ids=["empty", "cut", "list", "null", "bytes", "long", "deep"],
)
def test_report_that_is_none_is_as_if_there_was_none(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, changed = read(filled(), [b'{"step": 1}', answer], monkeypatch)
    assert changed == [KEY]
    assert reader.last[KEY].report == {"step": 1}


@pytest.mark.parametrize(("phase", "job_phase"), [("Pending", "Starting"), ("Running", "Complete")])
def test_only_running_jobs_are_read(phase: str, job_phase: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, changed = read(filled(phase, job_phase), [b'{"step": 1}'], monkeypatch)
    assert (reader.last, changed) == ({}, [])


def test_one_reading_every_15_seconds() -> None:
    reader = ProgressReader(filled(), lambda key: None)
    due = [second for second in range(60) if reader._due(100.0 + second)]
    assert due == [0, 15, 30, 45]
