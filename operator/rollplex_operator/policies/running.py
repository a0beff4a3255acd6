"""Whether all ranks run, and what keeps them from it."""

from __future__ import annotations

from collections.abc import Iterator

from rollplex_operator.names import Condition, Reason
from rollplex_operator.observation import PodView
from rollplex_operator.policies.reports import place, ranks
from rollplex_operator.policies.turn import Turn
from rollplex_operator.times import timestamp

_IMAGE = frozenset(
    {
        *("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"),
        *("RegistryUnavailable", "SignatureValidationFailed"),
    }
)
_CONFIG = frozenset(
    {
        *("CreateContainerConfigError", "CreateContainerError", "RunContainerError", "ContainerCannotRun"),
        *("PreCreateHookError", "PostStartHookError", "PreStartHookError"),
    }
)


def running(turn: Turn) -> bool:
    """Condition Running and the count of nodes. Once all ranks were ready, it holds until a restart: a rank that is
    late to answer its probe still trains, and one that ended is a matter of restarts."""
    status = turn.status
    up = sum(_runs(pod) for pod in turn.current)
    status.fields["nodes"] = f"{up}/{turn.nodes}"
    if status.is_true(Condition.RUNNING):
        return False
    created = status.is_true(Condition.PODS_CREATED)
    if created and sum(_ready(pod) for pod in turn.current) == turn.nodes:
        if not status.fields.get("startTime"):
            status.fields["startTime"] = timestamp(turn.now)
        status.fields["rejections"] = None
        status.set(Condition.RUNNING, "True", Reason.ALL_RUNNING, f"{turn.nodes} of {turn.nodes} pods")
        turn.tell(Reason.ALL_RUNNING, f"attempt {status.attempt}: all pods run")
        return False
    if turn.outdated or (created and status.number("inPlaceRestarts") and _restarting(turn)):
        return False  # restarts has said why
    reason, message = next(_obstacles(turn.current), (Reason.STARTING, ""))
    # kubelets alternate between two words for the same, and schedulers count nodes anew all the time
    status.set(Condition.RUNNING, "False", reason, message, keep=True)
    return False


def _restarting(turn: Turn) -> bool:
    return turn.status.reason(Condition.RUNNING) == Reason.RESTARTING


def _runs(pod: PodView) -> bool:
    return pod.phase == "Running" and pod.deleting_since is None and all(each.running for each in ranks(pod))


def _ready(pod: PodView) -> bool:
    return _runs(pod) and all(each.ready for each in ranks(pod))


def _obstacles(pods: list[PodView]) -> Iterator[tuple[Reason, str]]:
    """What somebody has to do something about, the surest first."""
    for reasons, reason in ((_IMAGE, Reason.IMAGE_PULL), (_CONFIG, Reason.CONTAINER_CONFIG)):
        for pod in pods:
            for container in pod.containers:
                if container.waiting_reason in reasons:
                    said = f": {container.waiting_message}" if container.waiting_message else ""
                    yield reason, f"container {container.name} of {place(pod)}: {container.waiting_reason}{said}"
    for pod in pods:
        if pod.unschedulable:
            yield Reason.UNSCHEDULABLE, f"{place(pod)}: {pod.unschedulable}"
