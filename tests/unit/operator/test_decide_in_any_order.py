"""``decide`` against a cluster where anything happens in any order, and the operator is killed after any write."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rollplex_operator.names import TERMINAL, Phase
from rollplex_operator.observation import PodView, Progress
from tests.unit.operator.simulation import TARGET, Cluster, Crash

NODES = 3
MAX_RESTARTS = 4


class Anything(RuleBasedStateMachine):
    """After every rule: what must always hold. At the end: left alone, the job comes to an end."""

    @initialize(
        in_place=st.booleans(),
        clean=st.sampled_from(["running", "all", "none"]),
        suspended=st.booleans(),
        ttl=st.sampled_from([None, 60]),
    )
    def begin(self, in_place: bool, clean: str, suspended: bool, ttl: int | None) -> None:
        policy: dict[str, Any] = {"maxRestarts": MAX_RESTARTS, "cleanPods": clean, "suspend": suspended}
        if ttl is not None:
            policy["ttlSecondsAfterFinished"] = ttl
        self.cluster = Cluster(NODES, **policy)
        self.ended = ""
        self.lost = 0  # pods that went without the operator
        self.looked_at = 0
        self.transitions: dict[str, tuple[str, str]] = {}

    # ---- the operator

    @rule()
    def reconciles(self) -> None:
        self._reconcile(None)

    @rule(writes=st.integers(0, 5))
    def is_killed(self, writes: int) -> None:
        self._reconcile(writes)

    @rule()
    def settles(self) -> None:
        self.cluster.settle()

    # ---- what happens to it

    def _pods(self, *phases: str) -> list[PodView]:
        return [pod for pod in self.cluster.pods.values() if pod.phase in phases]

    @precondition(lambda self: self._pods("Pending"))
    @rule(data=st.data())
    def pods_start(self, data: st.DataObject) -> None:
        self.cluster.start(*data.draw(st.lists(st.sampled_from([p.name for p in self._pods("Pending")]), min_size=1)))

    @precondition(lambda self: self._pods("Running"))
    @rule(data=st.data(), code=st.sampled_from([0, 1, 42, 137]))
    def pod_ends(self, data: st.DataObject, code: int) -> None:
        name = data.draw(st.sampled_from(self._pods("Running"))).name
        said = json.dumps({"step": data.draw(st.integers(0, TARGET))}) if code == 0 else "broken"
        self.cluster.end(name, code, said)

    @precondition(lambda self: self._pods("Running"))
    @rule()
    def run_completes(self) -> None:
        self.cluster.complete()

    @precondition(lambda self: self._pods("Pending", "Running"))
    @rule(data=st.data())
    def pod_is_disrupted(self, data: st.DataObject) -> None:
        pod = data.draw(st.sampled_from(self._pods("Pending", "Running")))
        self.cluster.change(pod.name, disrupted="PreemptionByScheduler", deleting_since=self.cluster.now)
        self.lost += 1

    @precondition(lambda self: self.cluster.pods)
    @rule(data=st.data(), forgotten=st.booleans())
    def pod_vanishes(self, data: st.DataObject, forgotten: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.cluster.pods)))
        self.cluster.vanish(name)
        if forgotten:  # the operator was not there
            self.cluster.gone.clear()
        self.lost += 1  # while pods are being made, one that went is made again

    @precondition(lambda self: self._pods("Pending"))
    @rule(data=st.data())
    def node_refuses(self, data: st.DataObject) -> None:
        pod = data.draw(st.sampled_from(self._pods("Pending")))
        self.cluster.change(pod.name, phase="Failed", node="node-9", reason="TopologyAffinityError")

    @precondition(lambda self: self._pods("Running"))
    @rule()
    def containers_restart(self) -> None:
        self.cluster.restart_in_place()

    @rule()
    def deletions_end(self) -> None:
        self.cluster.finish_deletions()

    @rule(seconds=st.sampled_from([0.5, 3.0, 20.0, 400.0]))
    def time_passes(self, seconds: float) -> None:
        self.cluster.pass_time(seconds)

    @precondition(lambda self: self.cluster.job is not None)
    @rule(suspend=st.booleans())
    def user_suspends(self, suspend: bool) -> None:
        self.cluster.edit(suspend=suspend)

    @rule(data=st.data(), name=st.sampled_from([f"job-{index}" for index in range(NODES)]))
    def server_refuses(self, data: st.DataObject, name: str) -> None:
        answer = data.draw(st.sampled_from([None, (403, "exceeded quota: few"), (500, "internal"), (403, "no pods")]))
        self.cluster.refuse = lambda kind, other: answer if (kind, other) == ("Pod", name) else None

    @precondition(lambda self: self._pods("Running"))
    @rule(step=st.integers(0, TARGET), saved=st.integers(0, TARGET))
    def trainer_reports(self, step: int, saved: int) -> None:
        pod = next(pod for pod in self._pods("Running"))
        report = {"step": step, "targetStep": TARGET, "checkpoint": saved, "numa": {"aligned": True}}
        self.cluster.progress = Progress(self.cluster.now, pod.uid, report)

    # ---- what must hold

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "cluster") or self.cluster.job is None:
            return
        status = self.cluster.status
        if not status:
            return
        phase = status["phase"]
        assert phase in set(Phase)
        if self.ended:
            assert phase == self.ended, "a terminal phase is never left"
        elif phase in TERMINAL:
            self.ended = phase
        kinds = [each["type"] for each in status["conditions"]]
        assert len(kinds) == len(set(kinds)) == 8
        for written in self.cluster.statuses[self.looked_at :]:
            for each in written["conditions"]:
                before = self.transitions.get(each["type"])
                if before is not None and before[0] == each["status"]:
                    assert each["lastTransitionTime"] == before[1], "changes only with the status"
                self.transitions[each["type"]] = each["status"], each["lastTransitionTime"]
        self.looked_at = len(self.cluster.statuses)
        counted = status.get("restartsCountedTowardsMax", 0)
        assert counted <= min(MAX_RESTARTS, status.get("restarts", 0))
        most = NODES * (status.get("attempt", 0) + 1) + self.lost + self.cluster.given_back
        assert self.cluster.created <= most, (
            self.cluster.created,
            status.get("attempt"),
            self.lost,
            self.cluster.given_back,
        )
        json.dumps(status)

    @invariant()
    def a_second_look_writes_nothing(self) -> None:
        if not hasattr(self, "cluster") or self.cluster.job is None:
            return
        decision = self.cluster.decide()
        if not decision.writes:
            assert not self.cluster.decide().writes

    def teardown(self) -> None:
        if not hasattr(self, "cluster"):
            return
        cluster = self.cluster
        cluster.refuse = lambda kind, name: None
        if cluster.job is not None:
            cluster.edit(suspend=False)
        for _ in range(60):
            if cluster.over:
                break
            cluster.settle()
            cluster.finish_deletions()
            cluster.start()
            cluster.settle()
            cluster.complete()
            cluster.settle()
            cluster.pass_time(60.0)
        assert cluster.over, (cluster.phase, cluster.status, cluster.pods)
        if cluster.job is not None and self.ended:
            assert cluster.phase == self.ended

    def _reconcile(self, writes: int | None) -> None:
        with contextlib.suppress(Crash):
            self.cluster.reconcile(writes)


TestAnything = Anything.TestCase
TestAnything.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
