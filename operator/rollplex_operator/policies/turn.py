"""One decision while it is made: what was observed, the status as it becomes, and what is to be written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from rollplex.api.job import RollplexJob
from rollplex_operator.children import Resolved, pod_name, resolve
from rollplex_operator.decision import Decision, Delete, Manifest, Note
from rollplex_operator.names import Condition, Reason
from rollplex_operator.observation import Observation, PodView
from rollplex_operator.pods import NEW_PODS
from rollplex_operator.status import Status
from rollplex_operator.times import timestamp

# times that a kubelet or the server wrote are whole seconds: looked at a little late, they are over
_LATE = 0.1


@dataclass(slots=True)
class Turn:
    """Policies read ``observation`` and ``job``, and change the rest. ``job`` is None where its spec cannot be read."""

    observation: Observation
    now: float
    status: Status
    job: RollplexJob | None = None
    blocked: bool = False  # no pod may be created yet
    notes: list[Note] = field(default_factory=list)
    deletes: dict[str, Delete] = field(default_factory=dict)  # by uid
    applies: list[Manifest] = field(default_factory=list)
    creates: list[Manifest] = field(default_factory=list)
    ask_nodes: set[str] = field(default_factory=set)
    _wake: float | None = None

    # ---- the job

    @property
    def spec(self) -> RollplexJob:
        """The job, where admission could read it."""
        assert self.job is not None
        return self.job

    @property
    def nodes(self) -> int:
        """Pods of an attempt."""
        return self.spec.spec.nodes

    @property
    def ended(self) -> bool:
        """Whether the job is over."""
        return self.status.ended

    @property
    def wants_suspension(self) -> bool:
        """As the user wrote it, be the rest of the spec right or not."""
        policy = self.observation.job.document.get("spec", {}).get("runPolicy")
        return isinstance(policy, dict) and policy.get("suspend") is True

    @property
    def resolved(self) -> Resolved:
        """What ``auto`` became when the attempt began, whatever the server offers by now."""
        chosen = resolve(self.spec, self.observation.server)
        if self.status.fields.get("restart") == NEW_PODS:
            chosen = replace(chosen, restart_in_place=False)
        numa, gang = self.status.fields.get("numa"), self.status.fields.get("gang")
        if numa is None or gang is None:
            return chosen
        if (chosen.pinning, chosen.gpu_allocation) != (numa["pinning"], numa["gpuAllocation"]):
            asked = _resolved_as(self.spec, numa["pinning"], numa["gpuAllocation"], self.observation)
            chosen = replace(asked, restart_in_place=chosen.restart_in_place)
        return replace(chosen, gang=gang)

    # ---- pods

    @property
    def own(self) -> list[PodView]:
        """Pods that this very job controls, of all attempts."""
        uid = self.observation.job.uid
        return [pod for pod in self.observation.pods if pod.owner_uid == uid]

    @property
    def gone(self) -> list[PodView]:
        """Own pods that went since the last decision, as they were last seen."""
        uid = self.observation.job.uid
        return [pod for pod in self.observation.gone if pod.owner_uid == uid]

    @property
    def current(self) -> list[PodView]:
        """Pods of this attempt."""
        attempt = self.status.attempt
        return [pod for pod in self.own if pod.attempt == attempt]

    @property
    def outdated(self) -> list[PodView]:
        """Own pods that are not of this attempt."""
        attempt = self.status.attempt
        return [pod for pod in self.own if pod.attempt != attempt]

    @property
    def missing(self) -> list[int]:
        """Indexes of nodes without a pod of this attempt."""
        there = {pod.name for pod in self.current}
        name = self.observation.job.name
        return [index for index in range(self.nodes) if pod_name(name, index) not in there]

    def begin_attempt(self) -> None:
        """From now on pods belong to the next attempt: those that there are have to go."""
        fields, attempt = self.status.fields, self.status.attempt
        fields["attempt"] = 0 if attempt is None else attempt + 1
        fields["inPlaceRestarts"] = 0
        fields["rejections"] = None
        self.status.set(Condition.PODS_CREATED, "False", Reason.CREATING)
        self.status.set(Condition.NUMA_ALIGNED, "Unknown", Reason.NOT_REPORTED)

    # ---- what is to be written

    def delete(self, pods: Iterable[PodView]) -> None:
        """Delete pods that are not being deleted yet, with time for a checkpoint."""
        grace = None if self.job is None else self.job.spec.run_policy.termination_grace_seconds
        for pod in pods:
            if pod.deleting_since is None:
                self.deletes[pod.uid] = Delete("Pod", pod.name, pod.uid, grace)

    def force(self, pod: PodView) -> None:
        """Take a pod out of the API, whatever its node says; once."""
        if pod.grace_seconds > 0:
            self.deletes[pod.uid] = Delete("Pod", pod.name, pod.uid, 0)

    def wake(self, at: float) -> None:
        """Look again at a time (seconds since the epoch), or before."""
        self._wake = at if self._wake is None else min(self._wake, at)

    def warn(self, reason: Reason, message: str) -> None:
        """An event that somebody should see."""
        self.notes.append(Note("Warning", str(reason), message))

    def tell(self, reason: Reason, message: str) -> None:
        """An event of the usual course."""
        self.notes.append(Note("Normal", str(reason), message))

    def fail(self, reason: Reason, message: str) -> None:
        """The job has failed, for good."""
        self.status.set(Condition.FAILED, "True", reason, message)
        self._end(reason)
        self.warn(reason, message)

    def complete(self, message: str) -> None:
        """The job has reached its target."""
        self.status.set(Condition.COMPLETE, "True", Reason.TARGET_STEP_REACHED, message)
        self._end(Reason.TARGET_STEP_REACHED)
        self.tell(Reason.TARGET_STEP_REACHED, message)

    def _end(self, reason: Reason) -> None:
        self.status.set(Condition.RUNNING, "False", reason)
        self.status.set(Condition.SUSPENDED, "False", Reason.NOT_SUSPENDED)
        self.status.fields["completionTime"] = timestamp(self.now)

    def decision(self) -> Decision:
        """All of it."""
        status, due = self.status.written()
        if due is not None:
            self.wake(due)
        return Decision(
            status=status,
            notes=tuple(self.notes) if status is not None else (),
            delete=tuple(self.deletes.values()),
            apply=tuple(self.applies),
            create=tuple(self.creates),
            ask_nodes=frozenset(self.ask_nodes),
            look_again=None if self._wake is None else max(_LATE, self._wake - self.now + _LATE),
        )


def _resolved_as(job: RollplexJob, pinning: str, allocation: str, observation: Observation) -> Resolved:
    """As if the user had asked for what was chosen before."""
    asked = {"pinning": pinning} | ({} if allocation == "none" else {"gpu_allocation": allocation})
    numa = job.spec.numa.model_copy(update=asked)
    return resolve(job.model_copy(update={"spec": job.spec.model_copy(update={"numa": numa})}), observation.server)
