"""What must hold after every situation: read from what the API server recorded, not from what the operator says."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import requests

from rollplex_operator import names
from tests.cluster.client import Client, Object
from tests.cluster.control_plane import ControlPlane
from tests.cluster.processes import wait_for

REASONS = frozenset(reason.value for reason in names.Reason)
CONDITIONS = frozenset(condition.value for condition in names.Condition)
CHILDREN = ("pods", "services", "configmaps", "poddisruptionbudgets", "resourceclaimtemplates")


class History:
    """Every version of every job and the birth of every pod, from watches that start before the first of them."""

    def __init__(self, plane: ControlPlane) -> None:
        self.jobs: dict[str, list[Object]] = defaultdict(list)  # by uid, oldest first
        self.pods: dict[str, Object] = {}  # by uid, as first seen
        self.gone: dict[str, float] = {}  # uid -> when it was gone (time.monotonic)
        self.born: dict[str, float] = {}
        self._plane = plane
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._watch, args=(path,), daemon=True)
            for path in ("/apis/rollplex.io/v1alpha1/rollplexjobs", f"/api/v1/pods?labelSelector={names.LABEL_JOB}")
        ]

    def __enter__(self) -> History:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def versions(self, namespace: str, name: str | None = None) -> list[list[Object]]:
        """Versions of each job of a namespace, those that are gone too."""
        with self._lock:
            return [
                list(seen)
                for seen in self.jobs.values()
                if seen[0]["metadata"]["namespace"] == namespace and name in (None, seen[0]["metadata"]["name"])
            ]

    def phases(self, namespace: str, name: str) -> list[str]:
        """Phases that the newest job of that name went through, without repetition."""
        seen = [
            each["status"]["phase"] for each in self.versions(namespace, name)[-1] if "phase" in each.get("status", {})
        ]
        return [phase for before, phase in zip([None, *seen], seen, strict=False) if before != phase]

    def pods_of(self, namespace: str, job: str | None = None) -> list[Object]:
        """Every pod that there ever was."""
        with self._lock:
            pods = list(self.pods.values())
        return [
            pod
            for pod in pods
            if pod["metadata"]["namespace"] == namespace and job in (None, pod["metadata"]["labels"][names.LABEL_JOB])
        ]

    def _watch(self, path: str) -> None:
        url, query = (
            self._plane.url + path.partition("?")[0],
            dict([path.partition("?")[2].split("=")] if "?" in path else []),
        )
        session = requests.Session()
        session.verify, session.trust_env = str(self._plane.authority.certificate), False
        session.headers["Authorization"] = f"Bearer {self._plane.tokens['admin']}"
        version = "0"
        while not self._ended.is_set():
            with contextlib.suppress(requests.RequestException):
                more = {"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true", **query}
                with session.get(url, params=more, stream=True, timeout=(5, 300)) as answer:
                    for line in answer.iter_lines(chunk_size=65536):
                        event = json.loads(line)
                        if event.get("type", "ERROR") == "ERROR":  # or not an event at all: a bare Status
                            version = "0"
                            break
                        version = event["object"]["metadata"]["resourceVersion"]
                        self._note(event["type"], event["object"])
            time.sleep(0.1)

    def _note(self, kind: str, body: Object) -> None:
        uid = body["metadata"].get("uid")
        with self._lock:
            if kind == "BOOKMARK" or uid is None:
                return
            if kind == "DELETED":
                self.gone.setdefault(uid, time.monotonic())
            elif body["kind"] == "Pod":
                self.pods.setdefault(uid, body)
                self.born.setdefault(uid, time.monotonic())
            else:
                self.jobs[uid].append(body)


def assert_invariants(
    plane: ControlPlane, history: History, client: Client, users: Sequence[str], *, injected: int = 0, idle: float = 1.0
) -> None:
    """No child of a dead owner, no terminal phase left, no pod too many, and nothing is written any more.

    Args:
        users: the operators of this namespace, for the count of their writes.
        injected: faults that the test injected; each may have cost a pod.
        idle: seconds in which no operator may write.
    """
    wait_for("children of dead owners are gone", lambda: not _orphans(client), 20.0)
    for versions in history.versions(client.namespace):
        assert_lawful(versions)
        nodes = max(each["spec"].get("nodes", 1) for each in versions)
        uid = versions[0]["metadata"]["uid"]
        status = versions[-1].get("status", {})
        made = [pod for pod in history.pods_of(client.namespace) if pod["metadata"]["labels"][names.LABEL_UID] == uid]
        phases = [each.get("status", {}).get("phase") for each in versions]
        resumed = sum(before == "Suspended" != after for before, after in itertools.pairwise(phases))
        limit = nodes * (status.get("restarts", 0) + 1 + resumed + injected)
        assert len(made) <= limit, f"{len(made)} pods of a job of {nodes} with {status.get('restarts')} restarts"
    before = [len(work_of(plane, user)) for user in users]
    time.sleep(idle)
    since = [work_of(plane, user)[seen:] for user, seen in zip(users, before, strict=True)]
    assert not any(since), [writes[:5] for writes in since]


def work_of(plane: ControlPlane, user: str) -> list[dict[str, Any]]:
    """What an operator wrote, but for the lease, which a leader renews every 2 s whatever there is to do."""
    return [write for write in plane.writes(user) if write["objectRef"]["resource"] != "leases"]


def assert_lawful(versions: Sequence[Object]) -> None:
    """The whole life of one job: phases, conditions, times and counters only ever change as they may."""
    last: dict[str, Any] = {}
    for version in versions:
        status = version.get("status", {})
        if not status:
            assert not last, "the status was emptied"
            continue
        if last.get("phase") in names.TERMINAL:
            assert status["phase"] == last["phase"], f"{last['phase']} was left for {status['phase']}"
        assert status["phase"] in set(names.Phase), status["phase"]
        for counter in ("attempt", "restarts", "restartsCountedTowardsMax"):
            assert status.get(counter, 0) >= last.get(counter, 0), f"{counter} fell: {last} -> {status}"
        before = {each["type"]: each for each in last.get("conditions", [])}
        for each in status.get("conditions", []):
            _assert_condition(each, before.get(each["type"]), version["metadata"]["generation"])
        _assert_one_phase(status)
        last = status


def _assert_condition(each: dict[str, Any], before: dict[str, Any] | None, generation: int) -> None:
    assert each["type"] in CONDITIONS, each
    assert each["reason"] in REASONS, each
    assert 1 <= each["observedGeneration"] <= generation, each
    if before is not None and before["status"] == each["status"]:
        assert each["lastTransitionTime"] == before["lastTransitionTime"], f"time changed, status not: {before} {each}"


def _assert_one_phase(status: dict[str, Any]) -> None:
    true = {each["type"] for each in status.get("conditions", []) if each["status"] == "True"}
    phase = status["phase"]
    for kind, own in (("Complete", "Complete"), ("Failed", "Failed"), ("Suspended", "Suspended")):
        assert (kind in true) == (phase == own), f"phase {phase} with {sorted(true)}"
    if phase == "Running":
        assert "Running" in true, f"phase {phase} with {sorted(true)}"


def _orphans(client: Client) -> list[str]:
    owners = {job["metadata"]["uid"] for job in client.list("rollplexjobs")}
    return [
        f"{plural}/{child['metadata']['name']}"
        for plural in CHILDREN
        for child in client.list(plural, names.LABEL_JOB)
        if not owners.issuperset(ref["uid"] for ref in child["metadata"].get("ownerReferences", [{"uid": None}]))
    ]
