"""The same job over and over: create -> Running -> restart -> Complete, each time with one fault at another request."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tests.cluster.client import Client
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fake_kubelet import FakeKubelet, Fate
from tests.cluster.history import History, assert_lawful
from tests.cluster.jobs import in_phase, make_job
from tests.cluster.operator_process import Operator
from tests.cluster.processes import tail, wait_for
from tests.cluster.proxy import Fault, Proxy, Request

NODES = 2
# which pod ends first is chance, and what "running" leaves of them too
POLICY = {"restart": "newPods", "cleanPods": "all"}
QUIET = 0.5  # seconds without a request after which none is expected
_numbers = itertools.count()

End = dict[str, Any]  # of a job: what does not depend on times, names and uids


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault: at the k-th request (0: never), a fault of the network or the death of the operator (None).

    With ``starting`` the operator starts with the job already there, and its first requests are counted too.
    """

    k: int
    fault: Fault | None = None
    starting: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """How a job went.

    Attributes:
        end: of the job.
        requests: of its operators, in order; the strike's is the k-th.
        struck: whether it came to the strike.
        failure: what went wrong: "" if nothing, or else ``end`` is empty.
    """

    strike: Strike
    end: End
    requests: list[Request]
    struck: bool
    failure: str = ""

    def __str__(self) -> str:
        k = self.strike.k
        if k == 0:
            return "no fault"
        at = f" ({self.requests[k - 1]})" if k <= len(self.requests) else ""
        when = " from its start" if self.strike.starting else ""
        return f"{self.strike.fault or 'kill -9'} at request {k}{when}{at}"


class Lane:
    """One operator behind its proxy in a namespace of its own, which runs one job after the other."""

    def __init__(self, plane: ControlPlane, kubelet: FakeKubelet, history: History, namespace: str) -> None:
        self.plane, self.kubelet, self.history, self.namespace = plane, kubelet, history, namespace
        self.client: Client = plane.client(namespace=namespace)
        self.proxy = Proxy(plane)
        # processes end with the thread that started them
        self.thread = ThreadPoolExecutor(1, thread_name_prefix=namespace)
        self._operator: Operator | None = None
        self._struck = threading.Event()
        kubelet.fates[namespace] = lambda _: Fate(start_seconds=0.05, terminate_seconds=0.1)

    def __enter__(self) -> Lane:
        self.proxy.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.thread.submit(self._stop_operator).result()
        self.thread.shutdown()
        self.proxy.__exit__()

    def run(self, strike: Strike, wanted: End | None = None) -> Run:
        """Run one job: pod 0 fails in its first attempt, in its second all reach the target.

        It ends when the job is over, as ``wanted``, and all is quiet. Call it in the lane's ``thread``.
        """
        name = f"job-{next(_numbers)}"
        try:
            self._arm(strike)
            self.client.create("rollplexjobs", make_job(name, NODES, runPolicy=POLICY))
            self._await(f"{name} runs", lambda: self._runs(name, 0))
            self.kubelet.end(self.namespace, f"{name}-0", 1)
            self._await(f"{name} runs again", lambda: self._runs(name, 1))
            for index in range(NODES):
                self.kubelet.end(self.namespace, f"{name}-{index}", 0)
            self._await(f"{name} is over", lambda: self._is_over(name))
            if wanted is not None:
                self._await(f"{name} is as without a fault", lambda: _is_same(self._end_of(name), wanted))
            self._settle(name)
            end, failure = self._end_of(name), ""
        except (AssertionError, LookupError, OSError, RuntimeError) as error:  # others are to run nevertheless
            log = "" if self._operator is None else tail(self._operator.program.log)
            end, failure = {}, f"{error!r}\n{log}"
            self._stop_operator()
        requests = self.proxy.counted[len(self.proxy.counted) - self.proxy.count :]
        self.client.delete("rollplexjobs", name, missing_ok=True)
        return Run(strike, end, requests, self._struck.is_set(), failure)

    def _arm(self, strike: Strike) -> None:
        """An operator that has nothing to do, or none where it is to start; then the strike."""
        if strike.starting:
            self._stop_operator()
        elif self._operator is None:
            self._settle("the operator")
        self._struck.clear()
        self.proxy.begin()
        if strike.k and strike.fault is not None:
            self.proxy.fail_kth(strike.k, strike.fault, self._struck.set)
        elif strike.k:
            self.proxy.after(strike.k, self._kill)

    def _kill(self) -> None:
        assert self._operator is not None
        self._struck.set()
        self._operator.program.kill()

    def _stop_operator(self) -> None:
        if self._operator is not None:
            self._operator.program.stop()
        self._operator = None

    def _is_ready(self) -> bool:
        """Whether an operator is; starts it where there is none, or it was killed."""
        if self._operator is None or (not self._operator.program.running and self._struck.is_set()):
            user = None if self._operator is None else self._operator.user
            self._operator = Operator(self.plane, self.namespace, url=self.proxy.url, user=user)
        if not self._operator.program.running:
            raise RuntimeError("the operator ended by itself")
        return self._operator.answers("/readyz")

    def _await(self, what: str, condition: Callable[[], object]) -> None:
        def holds() -> bool:
            self._is_ready()  # or is started: meanwhile things go on
            return bool(condition())

        wait_for(what, holds, 60, every=0.1)

    def _settle(self, what: str) -> None:
        """Until nothing was asked for a while, so that requests of this job do not count for the next."""
        last = -1

        def quiet() -> bool:
            nonlocal last
            before, last = last, self.proxy.count
            return self._is_ready() and before == last

        wait_for(f"{what} settles", quiet, 60, every=QUIET)

    def _runs(self, name: str, attempt: int) -> bool:
        status = self.client.get("rollplexjobs", name).get("status", {})
        return (status.get("attempt"), status.get("phase")) == (attempt, "Running")

    def _is_over(self, name: str) -> bool:
        """Whether it ended, and all pods are gone, as its policy wants it."""
        ended = in_phase("Complete", "Failed")(self.client.get("rollplexjobs", name))
        return bool(ended) and not self.client.list("pods", f"rollplex.io/job={name}")

    def _end_of(self, name: str) -> End:
        job = self.client.get("rollplexjobs", name)
        [versions] = self.history.versions(self.namespace, name)
        assert_lawful(versions)
        status = job["status"]
        made = len(self.history.pods_of(self.namespace, name))
        assert made <= NODES * (status["restarts"] + 1), f"{made} pods were made"
        children = {
            plural: len(self.client.list(plural, f"rollplex.io/job={name}"))
            for plural in ("pods", "services", "configmaps", "poddisruptionbudgets")
        }
        counters = ("phase", "attempt", "restarts", "restartsCountedTowardsMax", "step", "targetStep")
        return {
            **{key: status.get(key) for key in counters},
            "conditions": {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]},
            "children": children,
        }


def _is_same(end: End, wanted: End) -> bool:
    differs = {key: (end[key], wanted[key]) for key in wanted if end[key] != wanted[key]}
    assert not differs, f"as it is, as it should be: {differs}"
    return True


def sweep(lanes: Sequence[Lane], strikes: Iterable[Strike], wanted: End | None = None) -> list[Run]:
    """Run all strikes, over the lanes in parallel."""
    todo: queue.SimpleQueue[Strike] = queue.SimpleQueue()
    for strike in strikes:
        todo.put(strike)

    def work(lane: Lane) -> list[Run]:
        done: list[Run] = []
        while True:
            try:
                strike = todo.get_nowait()
            except queue.Empty:
                return done
            done.append(lane.run(strike, wanted))

    works = [lane.thread.submit(work, lane) for lane in lanes]
    return [run for each in works for run in each.result()]
