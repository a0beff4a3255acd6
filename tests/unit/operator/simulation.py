"""A cluster in memory: it does what a Decision says, and to pods what a test says."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from rollplex_operator.decide import decide
from rollplex_operator.decision import Decision
from rollplex_operator.names import ANNOTATION_CONTENT, LABEL_ATTEMPT, LABEL_NODE, TERMINAL
from rollplex_operator.observation import (
    ChildView,
    ContainerView,
    JobView,
    Observation,
    PodView,
    Progress,
    Refusal,
    Server,
    Settings,
)
from tests.unit.operator.child_jobs import document

TARGET = 10
_clusters = itertools.count()  # a uid is one job's, ever


class Crash(Exception):  # noqa: N818 (what a test does to the operator, not an error)
    """The operator was killed after some write."""


class Cluster:
    """One job and all that belongs to it; time stands still but for :meth:`pass_time`."""

    def __init__(self, nodes: int = 2, server: Server | None = None, **policy: Any) -> None:
        self.now = 1_000_000.0
        self._numbers = itertools.count()
        spec = document(
            nodes=nodes,
            hardware={"profile": "cpu", "ranksPerNode": 1},
            training={"steps": TARGET, "promptsPerStep": nodes},
            image="trainer",
            runPolicy=policy,
        )
        self.job: JobView | None = JobView(
            f"job-{next(_clusters)}", "research", "job", 1, "0", self.now, False, spec, {}
        )
        self.server = server or Server()
        self.pods: dict[str, PodView] = {}  # by name
        self.children: dict[tuple[str, str], ChildView] = {}
        self.refusals: dict[tuple[str, str], Refusal] = {}
        self.nodes_ready: dict[str, bool] = {}
        self.progress: Progress | None = None
        self.refuse: Callable[[str, str], tuple[int, str] | None] = lambda kind, name: None
        self.gone: dict[str, PodView] = {}
        self.created = 0
        self.given_back = 0  # pods of an attempt that were taken away while it was being made
        self.statuses: list[Mapping[str, Any]] = []

    # ---- the operator

    def observe(self) -> Observation:
        assert self.job is not None
        return Observation(
            self.job,
            tuple(self.pods.values()),
            tuple(self.children.values()),
            dict(self.nodes_ready),
            self.progress,
            tuple(self.refusals.values()),
            self.server,
            Settings(),
            tuple(self.gone.values()),
        )

    def decide(self) -> Decision:
        return decide(self.observe(), self.now)

    def reconcile(self, writes: int | None = None) -> Decision:
        """Decide and carry out; after ``writes`` of them the operator is killed."""
        if self.job is None:
            return Decision()
        decision, gone = self.decide(), list(self.gone)
        left = itertools.count() if writes is None else iter(range(writes))
        if decision.status is not None:
            _next(left)
            self.job = replace(self.job, status=decision.status, resource_version=str(next(self._numbers)))
            self.statuses.append(decision.status)
        for each in decision.delete:
            _next(left)
            self._delete(each.kind, each.name, each.uid, each.grace_seconds)
        for manifest in decision.apply:
            _next(left)
            kind, name = manifest["kind"], manifest["metadata"]["name"]
            if self._refused(kind, name):
                return decision
            metadata = manifest["metadata"]
            attempt = int(metadata["labels"][LABEL_ATTEMPT])
            content = metadata["annotations"][ANNOTATION_CONTENT]
            self.children[kind, name] = ChildView(kind, name, self._uid(), self.job.uid, attempt, content)
        for manifest in decision.create:
            _next(left)
            if not self._create(manifest):
                return decision
        for uid in gone:
            self.gone.pop(uid, None)
        return decision

    def settle(self, rounds: int = 40) -> Decision:
        """Reconcile until nothing is left to do at this moment."""
        for _ in range(rounds):
            decision = self.reconcile()
            if self.job is None or not decision.writes:
                return decision
        raise AssertionError(f"still writing after {rounds} rounds: {self.decide()}")

    @property
    def status(self) -> dict[str, Any]:
        assert self.job is not None
        return dict(self.job.status)

    @property
    def phase(self) -> str:
        return str(self.status.get("phase", ""))

    @property
    def over(self) -> bool:
        return self.job is None or self.phase in TERMINAL

    def condition(self, kind: str) -> dict[str, Any]:
        return next((each for each in self.status.get("conditions", ()) if each["type"] == kind), {})

    # ---- the user

    def edit(self, **policy: Any) -> None:
        assert self.job is not None
        spec = {**self.job.document["spec"]}
        spec["runPolicy"] = {**spec.get("runPolicy", {}), **policy}
        self.job = replace(self.job, document={**self.job.document, "spec": spec}, generation=self.job.generation + 1)

    # ---- kubelets

    def change(self, name: str, **fields: Any) -> None:
        self.pods[name] = replace(self.pods[name], **fields)

    def start(self, *names: str) -> None:
        """Pods run, all of them where none is named."""
        for name in names or tuple(self.pods):
            pod = self.pods[name]
            if pod.phase == "Pending" and pod.deleting_since is None and not pod.gated:
                container = replace(pod.containers[0], running=True, ready=True)
                self.change(name, phase="Running", node=f"node-{pod.index}", containers=(container,))

    def end(self, name: str, code: int, message: str = "") -> None:
        container = replace(
            self.pods[name].containers[0],
            running=False,
            exit_code=code,
            finished=self.now,
            termination_message=message,
        )
        phase = "Succeeded" if code == 0 else "Failed"
        self.change(name, phase=phase, node=self.pods[name].node or "node-0", containers=(container,))

    def complete(self) -> None:
        for name, pod in self.pods.items():
            if pod.phase == "Running":
                self.end(name, 0, json.dumps({"step": TARGET, "targetStep": TARGET}) if pod.index == 0 else "")

    def restart_in_place(self) -> None:
        for name, pod in self.pods.items():
            self.change(name, containers=(replace(pod.containers[0], restarts=pod.containers[0].restarts + 1),))

    def finish_deletions(self) -> None:
        for name, pod in list(self.pods.items()):
            if pod.deleting_since is not None:
                self.vanish(name)

    def vanish(self, name: str) -> None:
        """A pod that is no more, but for what the operator last saw of it."""
        pod = self.pods.pop(name)
        self.gone[pod.uid] = pod

    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    # ---- the server

    def _uid(self) -> str:
        return f"uid-{next(self._numbers) + 1}"

    def _create(self, manifest: Mapping[str, Any]) -> bool:
        assert self.job is not None
        name, labels = manifest["metadata"]["name"], manifest["metadata"]["labels"]
        assert name not in self.pods, f"{name} is made while one of that name is there"
        if self._refused("Pod", name):
            return False
        self.created += 1
        self.pods[name] = PodView(
            uid=self._uid(),
            name=name,
            owner_uid=self.job.uid,
            attempt=int(labels[LABEL_ATTEMPT]),
            index=int(labels[LABEL_NODE]),
            phase="Pending",
            created=float(int(self.now)),
            grace_seconds=300.0,
            qos="Guaranteed",
            containers=tuple(ContainerView(each["name"], False, False, 0) for each in manifest["spec"]["containers"]),
        )
        return True

    def _refused(self, kind: str, name: str) -> bool:
        answer = self.refuse(kind, name)
        if answer is None:
            self.refusals.pop((kind, name), None)
            return False
        known = self.refusals.get((kind, name))
        count = known.count + 1 if known else 1
        self.refusals[kind, name] = Refusal(kind, name, answer[0], "Forbidden", answer[1], count, self.now)
        return True

    def _delete(self, kind: str, name: str, uid: str, grace: int | None) -> None:
        if kind == "RollplexJob":
            assert self.job is not None
            assert self.job.uid == uid
            self.job, self.pods, self.children = None, {}, {}
        elif kind == "Pod":
            pod = self.pods.get(name)
            if pod is None or pod.uid != uid:
                return
            self.given_back += pod.attempt == self.status["attempt"] and pod.deleting_since is None
            if grace == 0 or pod.node is None or pod.phase in ("Succeeded", "Failed"):
                self.vanish(name)
            else:
                seconds = pod.grace_seconds if grace is None else float(grace)
                self.pods[name] = replace(pod, deleting_since=self.now, grace_seconds=seconds)
        elif self.children.get((kind, name)) is not None and self.children[kind, name].uid == uid:
            del self.children[kind, name]


def _next(left: Any) -> None:
    try:
        next(left)
    except StopIteration:
        raise Crash from None
