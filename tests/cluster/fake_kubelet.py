"""Nodes without machines: pods bound to them run, report, end and go as the test says. Only the kubelet is played.

Scheduler, garbage collector and API server are real. Pods are found by the label that all of the operator's carry.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import threading
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rollplex_operator import names
from rollplex_operator.pods import IN_PLACE_FEATURE
from tests.cluster import pod_status
from tests.cluster.client import Object
from tests.cluster.control_plane import ControlPlane
from tests.cluster.jobs import NODE_LABEL
from tests.cluster.kubelet_api import KubeletApi, cancel_all, own_subnet, status_server

FOR_ALL = "node"  # prefix of the nodes that take every pod
BIG = {
    "cpu": "100000",
    "memory": "1Pi",
    "pods": "10000",
    "ephemeral-storage": "100Ti",
    "nvidia.com/gpu": "10000",
    "rdma/rdma_shared_device_a": "10000",
}


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of a pod that was bound to a node; by default it runs until somebody ends it."""

    start_seconds: float = 0.0
    reject: str = ""  # the kubelet's reason, such as TopologyAffinityError
    wait: str = ""  # never starts: ImagePullBackOff, ...
    run_seconds: float | None = None  # then all its containers end, with
    exit_code: int = 0
    message: str = ""  # the termination message; that of exit code 0 says by default that the target was reached
    terminate_seconds: float = 0.0  # from SIGTERM to its end, but never longer than the grace
    terminate_code: int = names.EXIT_SAVED_ON_SIGTERM
    answers: bool = True  # False: its /status takes connections and says nothing


FateOf = Callable[["Pod"], Fate]


@dataclass(slots=True)
class Pod:
    """A pod as the kubelet sees it."""

    body: Object
    ip: str
    fate: Fate = field(default_factory=Fate)
    restarts: int = 0
    task: asyncio.Task[None] | None = None
    terminating: bool = False
    up: bool = False

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return str(self.body["metadata"]["namespace"])

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.body["metadata"]["name"])

    @property
    def job(self) -> str:
        """The job's name."""
        return str(self.body["metadata"]["labels"][names.LABEL_JOB])

    @property
    def attempt(self) -> int:
        """The attempt that it belongs to."""
        return int(self.body["metadata"]["labels"][names.LABEL_ATTEMPT])

    @property
    def index(self) -> int:
        """Of its node within the job."""
        return int(self.body["metadata"]["labels"][names.LABEL_NODE])


class FakeKubelet:
    """All nodes of one control plane. ``fates[namespace]`` says what becomes of pods that start from then on."""

    def __init__(self, plane: ControlPlane) -> None:
        self.fates: dict[str, FateOf] = {}
        self.reports: dict[tuple[str, str], dict[str, Any]] = defaultdict(lambda: {"step": 0, "targetStep": 10})
        self.reads: dict[tuple[str, str], int] = defaultdict(int)  # how often somebody read the job's /status
        self.dead_nodes: set[str] = set()
        self.faults: list[BaseException] = []  # of the kubelet itself: a test that meets one says nothing
        self._plane = plane
        self._nodes: set[str] = set()
        self._pods: dict[str, Pod] = {}
        self._ips: Iterator[str] = iter(())
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fake kubelet", daemon=True)

    def __enter__(self) -> FakeKubelet:
        self._thread.start()
        assert self._ready.wait(20), "the fake kubelet does not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._main.cancel)
        self._thread.join(10)

    # ---- what tests call, from their own thread

    def add_nodes(
        self,
        prefix: str,
        count: int,
        capacity: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        features: Sequence[str] = (IN_PLACE_FEATURE,),
    ) -> list[str]:
        """Make Ready nodes. Those of another prefix than ``node`` take only the pods of :func:`on_nodes`."""
        made = [f"{prefix}-{number}" for number in range(count)]
        self._nodes.update(made)
        every, size = {NODE_LABEL: prefix, **(labels or {})}, {**BIG, **(capacity or {})}
        taints = [] if prefix == FOR_ALL else [{"key": NODE_LABEL, "value": prefix, "effect": "NoSchedule"}]

        async def make() -> None:
            await asyncio.gather(*(self._api.make_node(name, size, every, taints, features) for name in made))

        self._call(make())
        return made

    def kill_node(self, name: str, *, delete: bool = False) -> None:
        """The node stops answering and becomes NotReady, or its object goes too."""
        self.dead_nodes.add(name)
        self._call(self._api.delete_node(name) if delete else self._api.set_node_ready(name, False))

    def report(self, namespace: str, job: str, **fields: Any) -> None:
        """Change what pod 0's /status and termination messages say."""
        self.reports[namespace, job].update(fields)

    def end(self, namespace: str, name: str, code: int, message: str | None = None) -> None:
        """A rank of the pod exits with ``code``: the containers are restarted in place where their rules say so."""
        self._call(self._end(self.pod(namespace, name), code, message))

    def restart_in_place(self, namespace: str, job: str, code: int = names.EXIT_RESTART) -> None:
        """What a fault inside the pods does: every supervisor of the job exits with ``code``."""
        pods = [pod for pod in self.pods(namespace) if pod.job == job and pod.up]
        self._call(_all(self._end(pod, code, None) for pod in pods))

    def evict(self, namespace: str, name: str, reason: str = "EvictionByEvictionAPI", code: int = 137) -> None:
        """As preemption or node pressure does it: the condition DisruptionTarget, then the pod fails."""
        pod = self.pod(namespace, name)

        async def disrupt() -> None:
            await self._api.patch_status(pod.body, pod_status.disrupted(reason))
            await self._end(pod, code, "")

        self._call(disrupt())

    def pod(self, namespace: str, name: str) -> Pod:
        """The pod of that name that is on a node and not on its way out."""
        return next(pod for pod in self.pods(namespace) if pod.name == name and not pod.terminating)

    def pods(self, namespace: str) -> list[Pod]:
        """Pods on nodes."""
        return [pod for pod in list(self._pods.values()) if pod.namespace == namespace]

    # ---- the loop

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._main = self._loop.create_task(self._serve())
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._main)
        self._loop.run_until_complete(cancel_all())
        self._loop.close()

    async def _serve(self) -> None:
        async with KubeletApi(self._plane) as self._api:
            with own_subnet() as second:
                self._ips = (f"127.{second}.{n // 250 % 250}.{n % 250 + 1}" for n in itertools.count())
                await self._api.watch_pods(names.LABEL_JOB, self._seen, self._ready.set)

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def _seen(self, kind: str, body: Object) -> None:
        uid = body["metadata"]["uid"]
        pod = self._pods.get(uid)
        if kind == "DELETED":
            if pod is not None:
                del self._pods[uid]
                self._replace_task(pod, None)
            return
        node = body["spec"].get("nodeName")
        if node not in self._nodes or node in self.dead_nodes:
            return
        if pod is None:
            pod = self._pods[uid] = Pod(body, next(self._ips))
            pod.fate = self.fates.get(pod.namespace, _runs_on)(pod)
            if "deletionTimestamp" not in body["metadata"] and body["status"].get("phase", "Pending") == "Pending":
                self._replace_task(pod, self._live(pod))
        pod.body = body
        if "deletionTimestamp" in body["metadata"] and not pod.terminating:
            pod.terminating = True
            self._replace_task(pod, self._terminate(pod))

    def _replace_task(self, pod: Pod, work: Coroutine[Any, Any, None] | None) -> None:
        if pod.task is not None:
            pod.task.cancel()
        pod.task = None if work is None else self._start(work)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        task.add_done_callback(self._note_fault)
        return task

    def _note_fault(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (fault := task.exception()) is not None:
            self.faults.append(fault)

    async def _live(self, pod: Pod) -> None:
        fate = pod.fate
        await asyncio.sleep(fate.start_seconds)
        if fate.reject:
            message = f"Pod was rejected: {fate.reject}: the test says so"
            await self._api.patch_status(pod.body, pod_status.rejected(fate.reject, message))
            return
        if fate.wait:
            await self._api.patch_status(pod.body, pod_status.waiting(pod.body, fate.wait, "the test says so"))
            return
        async with contextlib.AsyncExitStack() as stack:
            if pod.index == 0:
                await stack.enter_async_context(status_server(pod.ip, lambda: self._status(pod)))
            pod.up = True
            await self._api.patch_status(pod.body, pod_status.running(pod.body, pod.ip))
            if fate.run_seconds is None:
                await asyncio.Event().wait()
            await asyncio.sleep(fate.run_seconds or 0.0)
        self._start(self._end(pod, fate.exit_code, fate.message or None))

    def _status(self, pod: Pod) -> dict[str, Any] | None:
        self.reads[pod.namespace, pod.job] += 1
        return self._report(pod) if pod.fate.answers else None

    def _report(self, pod: Pod) -> dict[str, Any]:
        return {"attempt": pod.attempt, **self.reports[pod.namespace, pod.job]}

    async def _end(self, pod: Pod, code: int, message: str | None) -> None:
        if pod_status.restarts_in_place(pod.body, code):
            pod.restarts += 1
            await self._api.patch_status(pod.body, pod_status.running(pod.body, pod.ip, pod.restarts, code))
            return
        if message is None:
            report = self._report(pod)
            if code == names.EXIT_COMPLETE and "step" not in pod.fate.message:
                report["step"] = report["targetStep"]
            message = json.dumps(report)
        pod.up = False
        codes = {container["name"]: code for container in pod.body["spec"]["containers"]}
        await self._api.patch_status(pod.body, pod_status.ended(pod.body, codes, message, pod.restarts))
        if pod.task is not asyncio.current_task():
            self._replace_task(pod, None)

    async def _terminate(self, pod: Pod) -> None:
        grace = pod.body["metadata"].get("deletionGracePeriodSeconds", 30)
        if pod.up:
            await asyncio.sleep(min(pod.fate.terminate_seconds, grace))
            code = 137 if pod.fate.terminate_seconds > grace else pod.fate.terminate_code
            codes = {container["name"]: code for container in pod.body["spec"]["containers"]}
            message = json.dumps(self._report(pod))
            await self._api.patch_status(pod.body, pod_status.ended(pod.body, codes, message, pod.restarts))
        await self._api.delete_pod(pod.body)


def _runs_on(_: Pod) -> Fate:
    return Fate()


async def _all(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    await asyncio.gather(*works)
