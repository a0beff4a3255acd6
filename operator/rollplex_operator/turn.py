"""One decision while it is made: what was observed, the status as it becomes, and what is to be written."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rollplex.api.job import RollplexJob
from rollplex_operator.children import Resolved, pod_name, resolve
from rollplex_operator.decision import Decision, Delete, Manifest, Note
from rollplex_operator.names import Condition, Reason
from rollplex_operator.observation import Observation, PodView
from rollplex_operator.status import Status


@dataclass(slots=True)
class Turn:
    """Policies read ``observation`` and ``job`` and change the rest; ``job`` is set by the first of them."""

    observation: Observation
    now: float
    status: Status
    job: RollplexJob | None = None
    notes: list[Note] = field(default_factory=list)
    deletes: dict[str, Delete] = field(default_factory=dict)  # by uid
    applies: list[Manifest] = field(default_factory=list)
    creates: list[Manifest] = field(default_factory=list)
    ask_nodes: set[str] = field(default_factory=set)
    _wake: float | None = None

    @property
    def spec(self) -> RollplexJob:
        """The job, once admission has read it."""
        assert self.job is not None
        return self.job

    @property
    def resolved(self) -> Resolved:
        """What ``auto`` became: as it was when the attempt began, whatever the server offers by now."""
        chosen = resolve(self.spec, self.observation.server)
        fields = self.status.fields
        numa, gang = fields.get("numa") or {}, fields.get("gang")
        if self.status.attempt is None or gang is None or not numa:
            return chosen
        return replace(chosen, pinning=numa["pinning"], gpu_allocation=numa["gpuAllocation"], gang=gang)

    # ---- pods

    @property
    def own(self) -> list[PodView]:
        """Pods that this very job controls."""
        return [pod for pod in self.observation.pods if pod.owner_uid == self.observation.job.uid]

    @property
    def current(self) -> list[PodView]:
        """Pods of this attempt, by index."""
        found = [pod for pod in self.own if pod.attempt == self.status.attempt]
        return sorted(found, key=lambda pod: pod.index)

    @property
    def in_the_way(self) -> list[PodView]:
        """Pods that have to go before this attempt's can be made: of older attempts, or of another job of this name."""
        job, attempt = self.observation.job.uid, self.status.attempt
        return [pod for pod in self.observation.pods if pod.owner_uid != job or pod.attempt != attempt]

    @property
    def missing(self) -> list[int]:
        """Indexes of nodes without a pod of this attempt."""
        there = {pod.name for pod in self.current}
        name = self.observation.job.name
        return [index for index in range(self.spec.spec.nodes) if pod_name(name, index) not in there]

    def delete(self, pods: list[PodView], *, force: bool = False) -> None:
        """Delete pods that are not being deleted yet; ``force``: at once, whatever their node says."""
        grace = self.spec.spec.run_policy.termination_grace_seconds
        for pod in pods:
            if force or pod.deleting_since is None:
                ended = pod.phase in ("Succeeded", "Failed")
                self.deletes[pod.uid] = Delete("Pod", pod.name, pod.uid, 0 if force else None if ended else grace)

    # ---- what comes of it

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
        self.status.set(Condition.RUNNING, "False", reason, "the job has failed")
        self.warn(reason, message)

    def decision(self) -> Decision:
        """All of it. Notes go with a status only."""
        status, due = self.status.written()
        if due is not None:
            self.wake(self.now + due)
        return Decision(
            status=status,
            notes=tuple(self.notes) if status is not None else (),
            delete=tuple(self.deletes.values()),
            apply=tuple(self.applies),
            create=tuple(self.creates),
            ask_nodes=frozenset(self.ask_nodes),
            # a little late rather than early, since times on the server are whole seconds
            look_again=None if self._wake is None else max(0.05, self._wake - self.now + 0.05),
        )
