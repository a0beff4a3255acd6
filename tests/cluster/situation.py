"""A namespace with jobs in it: what a test does to them, and what it sees of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from rollplex_operator import names
from tests.cluster.client import Client, Kubectl, Object
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fake_kubelet import FakeKubelet, Fate, Pod
from tests.cluster.history import History, assert_invariants, work_of
from tests.cluster.jobs import condition, in_phase, make_job
from tests.cluster.operator_process import Operator
from tests.cluster.processes import wait_for
from tests.cluster.proxy import Proxy


class Situation:
    """Everything of one test. ``check()`` asserts what must hold after every situation."""

    def __init__(self, plane: ControlPlane, kubelet: FakeKubelet, history: History, namespace: str) -> None:
        self.plane, self.kubelet, self.history, self.namespace = plane, kubelet, history, namespace
        self.client: Client = plane.client(namespace=namespace)
        self.kubectl: Kubectl = plane.kubectl(namespace)
        self.operators: list[Operator] = []
        self.injected = 0
        self._stack = contextlib.ExitStack()

    def close(self) -> None:
        """Stop what was started."""
        self._stack.close()

    # ---- who acts

    def start_operator(
        self, *arguments: str, proxy: Proxy | None = None, wait: bool = True, user: str = "", leader_elect: bool = False
    ) -> Operator:
        """An operator of this namespace."""
        url = None if proxy is None else proxy.url
        operator = Operator(
            self.plane, self.namespace, url=url, user=user or None, arguments=arguments, leader_elect=leader_elect
        )
        self.operators.append(operator)
        self._stack.callback(operator.program.stop)
        if wait:
            operator.wait_ready()
        return operator

    def start_proxy(self) -> Proxy:
        """A proxy before the API server."""
        return self._stack.enter_context(Proxy(self.plane))

    def behave(self, fate: Fate | Callable[[Pod], Fate]) -> None:
        """What becomes of pods that start from now on."""
        self.kubelet.fates[self.namespace] = (lambda _: fate) if isinstance(fate, Fate) else fate

    # ---- jobs

    def create(self, name: str = "job", nodes: int = 2, **spec: Any) -> Object:
        """Create a job."""
        return self.client.create("rollplexjobs", make_job(name, nodes, **spec))

    def start(self, name: str = "job", nodes: int = 2, **spec: Any) -> Object:
        """Create a job, and wait until it runs."""
        self.create(name, nodes, **spec)
        return self.wait(name, "Running")

    def job(self, name: str = "job") -> Object:
        """The job as it is."""
        return self.client.get("rollplexjobs", name)

    def edit(self, name: str = "job", **spec: Any) -> Object:
        """A merge patch of the spec."""
        return self.client.patch("rollplexjobs", name, {"spec": spec})

    def wait(self, name: str, *wanted: str | Callable[[Object], object], timeout: float = 30.0) -> Object:
        """Wait until the job is in a phase, or as a function says."""
        tests = [in_phase(each) if isinstance(each, str) else each for each in wanted]
        what = f"job {name} is {', '.join(each if isinstance(each, str) else 'as wanted' for each in wanted)}"
        return self.client.wait("rollplexjobs", name, lambda job: all(test(job) for test in tests), timeout, what)

    def wait_restarts(self, restarts: int, name: str = "job", timeout: float = 30.0) -> Object:
        """Wait until the job runs after so many restarts."""
        return self.wait(name, lambda job: job["status"].get("restarts", 0) == restarts, "Running", timeout=timeout)

    def wait_attempt(self, attempt: int, name: str = "job", timeout: float = 30.0) -> Object:
        """Wait until the job runs in this attempt."""
        return self.wait(name, lambda job: job["status"].get("attempt") == attempt, "Running", timeout=timeout)

    def status(self, name: str = "job") -> dict[str, Any]:
        """The status, {} where there is none."""
        status: dict[str, Any] = self.job(name).get("status", {})
        return status

    def condition(self, kind: str, name: str = "job") -> dict[str, Any]:
        """One condition of the job."""
        return condition(self.job(name), kind)

    def phases(self, name: str = "job") -> list[str]:
        """Phases that it went through."""
        return self.history.phases(self.namespace, name)

    # ---- pods

    def pods(self, job: str = "job") -> list[Object]:
        """The job's pods, by name."""
        pods = self.client.list("pods", f"{names.LABEL_JOB}={job}")
        return sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))

    def pod_names(self, job: str = "job") -> list[str]:
        """Their names."""
        return [pod["metadata"]["name"] for pod in self.pods(job)]

    def made(self, job: str = "job") -> int:
        """Pods that were ever made for the job's name."""
        return len(self.history.pods_of(self.namespace, job))

    def fail(self, pod: str = "job-0", code: int = 1, message: str = "RuntimeError: broken") -> None:
        """A pod that ends with an exit code."""
        self.kubelet.end(self.namespace, pod, code, message)

    def complete(self, job: str = "job") -> None:
        """All pods end 0 at the target step."""
        for pod in [each for each in self.kubelet.pods(self.namespace) if each.job == job and not each.terminating]:
            self.kubelet.end(self.namespace, pod.name, 0)

    def wait_for(self, what: str, condition: Callable[[], object], timeout: float = 30.0) -> None:
        """Wait for anything else."""
        wait_for(what, condition, timeout, every=0.1)

    def events(self, job: str = "job", kind: str = "") -> list[Object]:
        """Events about the job, of type Warning or Normal."""
        return [
            event
            for event in self.client.list("events")
            if event["involvedObject"]["name"] == job
            and event["involvedObject"]["kind"] == "RollplexJob"
            and kind in ("", event["type"])
        ]

    def writes(self) -> list[dict[str, Any]]:
        """What its operators wrote in this namespace, but for leases."""
        users = {operator.user for operator in self.operators}
        written = [write for user in users for write in work_of(self.plane, user)]
        return [write for write in written if write["objectRef"].get("namespace") == self.namespace]

    def check(self, idle: float = 1.0) -> None:
        """What must hold after every situation; the operators still run."""
        assert not self.kubelet.faults, self.kubelet.faults
        # a status is seen before the events that go with it are written
        running = [operator for operator in self.operators if operator.program.running]
        self.wait_for("operators have done their work", lambda: all(each.is_idle() for each in running))
        users = [operator.user for operator in self.operators]
        assert_invariants(self.plane, self.history, self.client, users, injected=self.injected, idle=idle)
