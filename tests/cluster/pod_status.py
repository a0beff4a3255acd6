"""What a kubelet writes into ``pod.status``: pure builders, as patches by strategic merge."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

Patch = dict[str, Any]


def now() -> str:
    """The time as Kubernetes writes it."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def running(pod: Mapping[str, Any], ip: str, restarts: int = 0, last_exit: int | None = None) -> Patch:
    """All containers run and are ready; ``restarts`` counts those in place, ``last_exit`` is how each ended before."""
    last = {} if last_exit is None else {"lastState": {"terminated": _terminated(last_exit, "")}}
    statuses = [
        _container(each, ready=True, restarts=restarts, state={"running": {"startedAt": now()}}) | last
        for each in pod["spec"]["containers"]
    ]
    return _patch("Running", statuses, ready=True) | {"podIP": ip, "podIPs": [{"ip": ip}], "startTime": now()}


def waiting(pod: Mapping[str, Any], reason: str, message: str) -> Patch:
    """No container starts: ImagePullBackOff, CreateContainerConfigError and kin."""
    state = {"waiting": {"reason": reason, "message": message}}
    statuses = [_container(each, ready=False, restarts=0, state=state) for each in pod["spec"]["containers"]]
    return _patch("Pending", statuses, ready=False) | {"startTime": now()}


def ended(pod: Mapping[str, Any], codes: Mapping[str, int], message: str, restarts: int = 0) -> Patch:
    """All containers ended; ``codes`` is the exit code by container, 0 where there is none."""
    statuses = [
        _container(
            each,
            ready=False,
            restarts=restarts,
            state={"terminated": _terminated(codes.get(each["name"], 0), message)},
        )
        for each in pod["spec"]["containers"]
    ]
    return _patch("Failed" if any(codes.values()) else "Succeeded", statuses, ready=False)


def rejected(reason: str, message: str) -> Patch:
    """The kubelet did not admit the pod: no container status at all."""
    return {"phase": "Failed", "reason": reason, "message": message, "startTime": now()}


def disrupted(reason: str) -> Patch:
    """The condition that evictions, preemptions and node shutdowns leave."""
    return {
        "conditions": [
            {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": reason,
                "message": f"the test says {reason}",
                "lastTransitionTime": now(),
            }
        ]
    }


def restarts_in_place(pod: Mapping[str, Any], code: int) -> bool:
    """Whether a kubelet restarts all containers of this pod where they are, when one exits with ``code``."""
    return any(
        rule.get("action") == "RestartAllContainers"
        and rule.get("exitCodes", {}).get("operator") == "In"
        and code in rule["exitCodes"].get("values", [])
        for container in pod["spec"]["containers"]
        for rule in container.get("restartPolicyRules", [])
    )


def _terminated(code: int, message: str) -> Patch:
    reason = "Completed" if code == 0 else "Error"
    times = {"startedAt": now(), "finishedAt": now()}
    return {"exitCode": code, "reason": reason, "containerID": "fake://0", **times, "message": message}


def _container(spec: Mapping[str, Any], *, ready: bool, restarts: int, state: Patch) -> Patch:
    return {
        "name": spec["name"],
        "image": spec.get("image", ""),
        "imageID": "",
        "ready": ready,
        "started": ready,
        "restartCount": restarts,
        "state": state,
    }


def _patch(phase: str, statuses: list[Patch], *, ready: bool) -> Patch:
    at = now()
    status = "True" if ready else "False"
    return {
        "phase": phase,
        "containerStatuses": statuses,
        "conditions": [
            {"type": kind, "status": status, "lastTransitionTime": at} for kind in ("Ready", "ContainersReady")
        ],
    }
