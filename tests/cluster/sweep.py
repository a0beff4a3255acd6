"""The same job over and over: create -> Running -> restart -> Complete, each time with one fault at another request."""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tests.cluster.client import Client
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fake_kubelet import FakeKubelet, Fate, Pod
from tests.cluster.history import History, assert_lawful
from tests.cluster.jobs import in_phase, make_job
from tests.cluster.operator_process import Operator
from tests.cluster.processes import wait_for
from tests.cluster.proxy import Fault, Proxy

NODES = 2
# which pod ends first is chance, and what "running" leaves of them too
POLICY = {"restart": "newPods", "cleanPods": "all"}
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault: at the k-th request (0: never), a fault of the network or the death of the operator (None).

    With ``starting`` the operator starts with the job already there, and its first requests are counted too.
    """

    k: int
    fault: Fault | None = None
    starting: bool = False

    def __str__(self) -> str:
        what = "no fault" if self.k == 0 else f"{self.fault or 'kill -9'} at request {self.k}"
        return f"{what}, from its start" if self.starting else what


def life(pod: Pod) -> Fate:
    """In the first attempt pod 0 fails; in the second all pods reach the target."""
    if pod.attempt > 0:
        return Fate(start_seconds=0.05, run_seconds=0.4)
    return Fate(start_seconds=0.05, run_seconds=0.4 if pod.index == 0 else None, exit_code=1, terminate_seconds=0.1)


class Lane:
    """One operator behind its proxy in a namespace of its own, which runs one job after the other."""

    def __init__(self, plane: ControlPlane, kubelet: FakeKubelet, history: History, namespace: str) -> None:
        self.plane, self.kubelet, self.history, self.namespace = plane, kubelet, history, namespace
        self.client: Client = plane.client(namespace=namespace)
        kubelet.fates[namespace] = life

    def __enter__(self) -> Lane:
        self._stack = contextlib.ExitStack()
        self.proxy = self._stack.enter_context(Proxy(self.plane))
        self._stack.callback(lambda: self.operator.program.stop())
        self._start_operator()
        self.operator.wait_ready()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, strike: Strike) -> tuple[dict[str, Any], int, bool]:
        """(how it ended, requests that it took, whether the fault struck)."""
        name = f"job-{next(_numbers)}"
        if strike.starting:
            self.operator.program.stop()
        self.proxy.begin()
        killed = threading.Event()

        def kill() -> None:
            self.operator.program.kill()
            killed.set()

        if strike.k and strike.fault is not None:
            self.proxy.fail_kth(strike.k, strike.fault)
        elif strike.k:
            self.proxy.after(strike.k, kill)
        before = len(self.proxy.injected)
        self.client.create("rollplexjobs", make_job(name, NODES, runPolicy=POLICY))
        if strike.starting:
            self._start_operator()
        wait_for(f"{name} ends, or its operator does", lambda: killed.is_set() or self._ended(name), 60, every=0.1)
        if killed.is_set():
            self._start_operator()
        self.client.wait("rollplexjobs", name, in_phase("Complete", "Failed"), 60.0, f"{name} with {strike}")
        self.operator.wait_ready()
        self._settle(name)
        count = self.proxy.count
        end = self._end_of(name)
        self.client.delete("rollplexjobs", name)
        return end, count, killed.is_set() or len(self.proxy.injected) > before

    def _start_operator(self) -> None:
        self.operator = Operator(self.plane, self.namespace, url=self.proxy.url)

    def _ended(self, name: str) -> bool:
        return bool(in_phase("Complete", "Failed")(self.client.get("rollplexjobs", name)))

    def _settle(self, name: str) -> None:
        """Until nothing was asked for a while, so that requests of this job do not count for the next."""
        last = -1

        def quiet() -> bool:
            nonlocal last
            before, last = last, self.proxy.count
            return before == last

        wait_for(f"{name} settles", quiet, 20, every=0.5)

    def _end_of(self, name: str) -> dict[str, Any]:
        """What does not depend on times, names and uids."""
        job = self.client.get("rollplexjobs", name)
        [versions] = self.history.versions(self.namespace, name)
        assert_lawful(versions)
        status = job["status"]
        made = len(self.history.pods_of(self.namespace, name))
        assert made <= NODES * (status["restarts"] + 1), f"{made} pods were made"
        pods = [
            pod
            for pod in self.client.list("pods", f"rollplex.io/job={name}")
            if "deletionTimestamp" not in pod["metadata"]
        ]
        children = {
            plural: len(self.client.list(plural, f"rollplex.io/job={name}"))
            for plural in ("services", "configmaps", "poddisruptionbudgets")
        }
        counters = ("phase", "attempt", "restarts", "restartsCountedTowardsMax", "step", "targetStep")
        return {
            **{key: status.get(key) for key in counters},
            "conditions": {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]},
            "pods": sorted(pod["metadata"]["name"].removeprefix(name) for pod in pods),
            "phases": sorted({pod["status"]["phase"] for pod in pods}),
            "children": children,
        }


def sweep(lanes: Sequence[Lane], strikes: Iterable[Strike]) -> list[tuple[Strike, dict[str, Any], bool]]:
    """Run all strikes over the lanes in parallel; (strike, how it ended, whether it struck) of each."""
    todo: queue.SimpleQueue[Strike] = queue.SimpleQueue()
    for strike in strikes:
        todo.put(strike)
    with ThreadPoolExecutor(len(lanes)) as threads:
        works = [threads.submit(_work, lane, todo) for lane in lanes]
    return [result for work in works for result in work.result()]


def _work(lane: Lane, todo: queue.SimpleQueue[Strike]) -> list[tuple[Strike, dict[str, Any], bool]]:
    done = []
    with lane, contextlib.suppress(queue.Empty):
        while True:
            strike = todo.get_nowait()
            end, _, struck = lane.run(strike)
            done.append((strike, end, struck))
    return done
