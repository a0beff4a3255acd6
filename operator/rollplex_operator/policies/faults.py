"""Something happened to the pods of this attempt: the job fails, or the whole set begins again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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
from rollplex_operator.observation import PodView
from rollplex_operator.policies.attempts import begin_attempt
from rollplex_operator.policies.completion import reached
from rollplex_operator.policies.rejection import was_refused
from rollplex_operator.turn import Turn

# The supervisors of a pod end within 10 s of each other: a container that ended alone for longer is a fault.
ALONE_SECONDS = 30.0
_FINAL = {EXIT_BAD_JOB: Reason.BAD_JOB, EXIT_RUN_STOPPED: Reason.RUN_STOPPED}
_FOLLOWING = (EXIT_COMPLETE, EXIT_RESTART, EXIT_SAVED_ON_SIGTERM)  # what others end with because of the first


@dataclass(frozen=True, slots=True)
class Fault:
    """What happened to one pod. ``counts``: towards maxRestarts, unless it only followed from a disruption."""

    reason: Reason
    message: str
    counts: bool = True
    followed: bool = False


def faults(turn: Turn) -> bool:
    """Restarts, and conditions Failed. True: a new attempt has begun, or there was none."""
    status = turn.status
    if status.attempt is None or turn.status.phase in ("Complete", "Failed"):
        return False
    found = list(_found(turn))
    final = next((fault for fault in found if fault.reason in _FINAL.values()), None)
    if final is not None:
        turn.fail(final.reason, final.message)
        return False
    if found:
        disrupted = any(fault.reason == Reason.DISRUPTED for fault in found)
        counting = [fault for fault in found if fault.counts and not (disrupted and fault.followed)]
        cause = next((fault for fault in found if fault.reason == Reason.DISRUPTED), found[0])
        cause = counting[0] if counting else cause
        if _count(turn, 1, counted=bool(counting), cause=cause):
            begin_attempt(turn, status.attempt + 1)
            status.set(Condition.PODS_CREATED, "False", Reason.WAITING_FOR_OLD_PODS, "the old pods end first")
            status.set(Condition.RUNNING, "False", Reason.RESTARTING, cause.message)
        return False
    return _in_place(turn)


def _in_place(turn: Turn) -> bool:
    """Restarts that the kubelets made: as many as the pod that has the most."""
    status = turn.status
    most = max((each.restarts for pod in turn.current for each in pod.containers), default=0)
    new = most - status.number("inPlaceRestarts")
    if new > 0:
        cause = Fault(Reason.RESTARTED_IN_PLACE, f"the containers began again in their pods, the {most}. time")
        status.fields["inPlaceRestarts"] = most
        if _count(turn, new, counted=True, cause=cause):
            status.set(Condition.RUNNING, "False", Reason.RESTARTING, cause.message)
    return False


def _count(turn: Turn, restarts: int, *, counted: bool, cause: Fault) -> bool:
    """Count restarts; False: there are too many, and the job has failed."""
    status, most = turn.status, turn.spec.spec.run_policy.max_restarts
    towards = status.number("restartsCountedTowardsMax") + (restarts if counted else 0)
    if counted and towards > most:
        turn.fail(Reason.RESTARTS_EXHAUSTED, f"{cause.message}; runPolicy.maxRestarts is {most}")
        return False
    status.fields["restarts"] = status.number("restarts") + restarts
    status.fields["restartsCountedTowardsMax"] = towards
    turn.warn(cause.reason, cause.message)
    return True


def _found(turn: Turn) -> Iterator[Fault]:
    status = turn.status
    for pod in turn.current:
        if was_refused(pod) and not status.is_true(Condition.RUNNING):
            continue
        fault = _of(turn, pod)
        if fault is not None:
            yield fault
    if status.is_true(Condition.PODS_CREATED):
        for index in turn.missing:
            name = pod_name(turn.observation.job.name, index)
            yield Fault(Reason.POD_LOST, f"{name} is gone, and nobody said why")


def _of(turn: Turn, pod: PodView) -> Fault | None:
    where = f"{pod.name} on node {pod.node}" if pod.node else pod.name
    ended = [each for each in pod.containers if each.exit_code is not None]
    for each in ended:
        if each.exit_code in _FINAL:
            return Fault(_FINAL[each.exit_code], f"{where}: exit code {each.exit_code}: {each.termination_message}")
    if pod.disrupted:
        return Fault(Reason.DISRUPTED, f"{where}: {pod.disrupted}", counts=False)
    if pod.phase == "Failed":
        return _failed(where, pod)
    if pod.deleting_since is not None and turn.status.is_true(Condition.PODS_CREATED):
        return Fault(Reason.POD_LOST, f"{where} is being deleted, not by this operator")
    if pod.phase == "Succeeded":
        return _ended_early(turn, where, pod)
    for each in ended:
        over = (each.finished or turn.now) + ALONE_SECONDS
        if turn.now < over:
            turn.wake(over)
        else:
            code = f"exit code {each.exit_code}"
            return Fault(Reason.POD_FAILED, f"{where}: container {each.name} ended alone, {code}")
    return None


def _failed(where: str, pod: PodView) -> Fault:
    ended = [each for each in pod.containers if each.exit_code]
    if not ended:
        return Fault(Reason.POD_FAILED, f"{where}: {pod.reason or 'failed'}: {pod.message}")
    first = min(ended, key=lambda each: (each.exit_code in _FOLLOWING, each.finished or 0.0))
    followed = all(each.exit_code in _FOLLOWING for each in ended)
    text = first.termination_message.strip().rpartition("\n")[2]
    return Fault(
        Reason.POD_FAILED,
        f"{where}: exit code {first.exit_code}" + (f": {text[:500]}" if text else ""),
        followed=followed,
    )


def _ended_early(turn: Turn, where: str, pod: PodView) -> Fault | None:
    """Pod 0 before the target step; another while pod 0 still works, after a grace."""
    target = turn.spec.spec.training.steps
    if pod.index == 0:
        return Fault(Reason.ENDED_EARLY, f"{where}: ended with 0 at step {reached(turn)} of {target}", followed=True)
    over = max((each.finished or 0.0 for each in pod.containers), default=0.0) + ALONE_SECONDS
    if turn.now < over:
        turn.wake(over)
        return None
    return Fault(Reason.ENDED_EARLY, f"{where}: ended with 0 while pod 0 still works", followed=True)
