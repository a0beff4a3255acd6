"""Whether all pods run, and what the first that does not run waits for."""

from __future__ import annotations

from rollplex_operator.names import Condition, Reason
from rollplex_operator.observation import PodView
from rollplex_operator.status import timestamp
from rollplex_operator.turn import Turn

_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"})
_CONFIG = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PostStartHookError"})


def running(turn: Turn) -> bool:
    """Condition Running, ``nodes`` and ``startTime``."""
    status, nodes = turn.status, turn.spec.spec.nodes
    # one that has run and ended is waited for by completion or faults: that is no new start
    ran = status.is_true(Condition.RUNNING)
    up = [
        pod for pod in turn.current if runs(pod) or (ran and any(each.exit_code is not None for each in pod.containers))
    ]
    status.fields["nodes"] = f"{len(up)}/{nodes}"
    if len(up) == nodes and status.is_true(Condition.PODS_CREATED):
        if not status.is_true(Condition.RUNNING):
            turn.tell(Reason.ALL_RUNNING, f"all {nodes} pods run")
        status.set(Condition.RUNNING, "True", Reason.ALL_RUNNING)
        status.fields["startTime"] = status.fields.get("startTime") or timestamp(turn.now)
        status.fields["rejections"] = None
        return False
    for pod in turn.current:
        if (why := _waits_for(pod)) is not None:
            status.set(Condition.RUNNING, "False", *why, keep=True)
            return False
    in_place = status.reason(Condition.RUNNING) == Reason.RESTARTING and status.is_true(Condition.PODS_CREATED)
    if not in_place or not status.number("inPlaceRestarts"):
        status.set(Condition.RUNNING, "False", Reason.STARTING, f"{len(up)} of {nodes} pods run")
    return False


def runs(pod: PodView) -> bool:
    """Whether all its containers do."""
    whole = pod.phase == "Running" and pod.deleting_since is None
    return whole and bool(pod.containers) and all(each.running for each in pod.containers)


def _waits_for(pod: PodView) -> tuple[Reason, str] | None:
    if pod.unschedulable:
        return Reason.UNSCHEDULABLE, f"{pod.name}: {pod.unschedulable}"
    for each in pod.containers:
        if each.waiting_reason in _IMAGE:
            return (
                Reason.IMAGE_PULL,
                f"{pod.name}, container {each.name}: {each.waiting_reason}: {each.waiting_message}",
            )
        if each.waiting_reason in _CONFIG:
            what = f"{each.waiting_reason}: {each.waiting_message}"
            return Reason.CONTAINER_CONFIG, f"{pod.name}, container {each.name}: {what}"
    return None
