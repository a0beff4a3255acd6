"""What went wrong with the pods of this attempt, if anything: found here, acted upon by ``restarts``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from rollplex_operator.children import pod_name
from rollplex_operator.names import (
    EXIT_BAD_JOB,
    EXIT_COMPLETE,
    EXIT_RESTART,
    EXIT_RUN_STOPPED,
    EXIT_SAVED_ON_SIGTERM,
    Condition,
    Reason,
)
from rollplex_operator.observation import ContainerView, PodView
from rollplex_operator.policies.rejection import rejected
from rollplex_operator.policies.reports import driver, place, ranks, some, words_of
from rollplex_operator.policies.turn import Turn

# A container ended while its pod goes on: the others end too, or all are restarted in place, or nothing comes of it
OTHERS_SECONDS = 30.0
# of pods that were told to go without the condition DisruptionTarget, by older kubelets
_DISRUPTED = frozenset({"Evicted", "Preempting", "NodeShutdown", "Shutdown", "Terminated", "NodeLost"})
_FOLLOWS = frozenset({EXIT_RESTART, EXIT_SAVED_ON_SIGTERM})  # codes of ranks that ended because another did
_FOR_GOOD = {EXIT_BAD_JOB: Reason.BAD_JOB, EXIT_RUN_STOPPED: Reason.RUN_STOPPED}


class Weight(IntEnum):
    """Of several faults at once, the lowest is the cause of the others."""

    FOR_GOOD = 0
    DISRUPTED = 1
    FAILED = 2
    FOLLOWED = 3
    ENDED_EARLY = 4
    LOST = 5


@dataclass(frozen=True, slots=True)
class PodFault:
    """``at``: when, as far as is known; of faults of one weight the first is the cause."""

    weight: Weight
    reason: Reason
    message: str
    at: float = float("inf")

    @property
    def counts(self) -> bool:
        """Towards maxRestarts."""
        return self.reason != Reason.DISRUPTED


def find(turn: Turn) -> PodFault | None:
    """The cause, or None while all is well or it is too early to tell."""
    replaced = {pod.uid for pod in rejected(turn)}
    found = [fault for pod in turn.current if pod.uid not in replaced for fault in _of_pod(turn, pod)]
    if turn.status.is_true(Condition.PODS_CREATED) and (missing := turn.missing):
        went = {pod.name: pod for pod in turn.gone if pod.attempt == turn.status.attempt}
        names = [pod_name(turn.observation.job.name, index) for index in missing]
        last_seen = {name: list(_of_pod(turn, went[name])) if name in went else [] for name in names}
        found += [fault for seen in last_seen.values() for fault in seen]
        if unknown := [name for name, seen in last_seen.items() if not seen]:
            found.append(PodFault(Weight.LOST, Reason.POD_LOST, f"{some(unknown)} vanished; how it ended is not known"))
    return min(found, key=lambda fault: (fault.weight, fault.at), default=None)


def _of_pod(turn: Turn, pod: PodView) -> Iterator[PodFault]:
    for container in ranks(pod):
        if container.exit_code in _FOR_GOOD:
            reason = _FOR_GOOD[container.exit_code]
            yield PodFault(Weight.FOR_GOOD, reason, _ending(pod, container), container.finished or 0.0)
    created = turn.status.is_true(Condition.PODS_CREATED)
    if pod.deleting_since is not None and not created:
        return  # given back, or to be created again
    if pod.disrupted or (pod.phase == "Failed" and pod.reason in _DISRUPTED):
        why = pod.disrupted or pod.reason
        message = f"{place(pod)} was disrupted: {why}" + (f": {pod.message}" if pod.message else "")
        yield PodFault(Weight.DISRUPTED, Reason.DISRUPTED, message)
        return
    if pod.deleting_since is not None:
        yield PodFault(Weight.LOST, Reason.POD_LOST, f"{place(pod)} was deleted by somebody else", pod.deleting_since)
    ended = [container for container in ranks(pod) if container.exit_code is not None]
    failed = [container for container in ended if container.exit_code != EXIT_COMPLETE]
    for container in failed:
        if pod.phase == "Failed" or _waited(turn, container):
            weight = Weight.FOLLOWED if container.exit_code in _FOLLOWS else Weight.FAILED
            yield PodFault(weight, Reason.POD_FAILED, _ending(pod, container), container.finished or 0.0)
    if pod.phase == "Failed" and not ended:
        said = ": ".join(filter(None, (pod.reason, pod.message)))
        yield PodFault(Weight.FAILED, Reason.POD_FAILED, f"{place(pod)} failed" + (f": {said}" if said else ""))
    for container in ended:
        if container.exit_code == EXIT_COMPLETE and (container is driver(pod) or _waited(turn, container)):
            yield PodFault(Weight.ENDED_EARLY, Reason.ENDED_EARLY, _too_early(turn, pod), container.finished or 0.0)


def _waited(turn: Turn, container: ContainerView) -> bool:
    until = (container.finished or 0.0) + OTHERS_SECONDS
    if turn.now < until:
        turn.wake(until)
    return turn.now >= until


def _ending(pod: PodView, container: ContainerView) -> str:
    words = words_of(container) or pod.message
    said = f": {words}" if words else ""
    return f"container {container.name} of {place(pod)} ended with exit code {container.exit_code}{said}"


def _too_early(turn: Turn, pod: PodView) -> str:
    step, target = turn.status.fields.get("step"), turn.spec.spec.training.steps
    reached = "no step is known" if step is None else f"the last step known is {step}"
    return f"{place(pod)} ended with exit code 0 before step {target}: {reached}"
