"""From an object's JSON to the little that is kept of it. Odd or missing fields are read as absent, never refused."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Literal, get_args

from rollplex_operator.names import ANNOTATION_CONTENT, LABEL_ATTEMPT, LABEL_NODE
from rollplex_operator.observation import ChildView, ContainerView, JobView, PodView
from rollplex_operator.times import seconds_of

Object = Mapping[str, Any]
PodPhase = Literal["Pending", "Running", "Succeeded", "Failed", "Unknown"]

LARGEST_MESSAGE = 1024  # characters kept of a message that a kubelet or a scheduler wrote
LARGEST_REPORT = 16384  # of a termination message; the kubelet cuts at 4096 bytes for each container
_PHASES: tuple[PodPhase, ...] = get_args(PodPhase)


def job_view(body: Object) -> JobView:
    """A RollplexJob. What the server wrote about who changed which field is left out: nobody reads it."""
    metadata = body["metadata"]
    kept = ("name", "namespace", "labels", "annotations")
    return JobView(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        generation=metadata.get("generation", 0),
        resource_version=metadata["resourceVersion"],
        created=seconds_of(metadata.get("creationTimestamp")) or 0.0,
        deleting=metadata.get("deletionTimestamp") is not None,
        document={
            "apiVersion": body["apiVersion"],
            "kind": body["kind"],
            "metadata": {name: metadata[name] for name in kept if name in metadata},
            "spec": body.get("spec", {}),
        },
        status=body.get("status", {}),
    )


def pod_view(body: Object) -> PodView:
    """A pod."""
    metadata, spec, status = body["metadata"], body.get("spec", {}), body.get("status", {})
    labels = metadata.get("labels", {})
    conditions = {each.get("type"): each for each in status.get("conditions", ())}
    scheduled = conditions.get("PodScheduled", {})
    # the second is Kueue's, of a pod that it stops to give its place to another
    disrupted = conditions.get("DisruptionTarget") or conditions.get("TerminationTarget") or {}
    grace = metadata.get("deletionGracePeriodSeconds", 0) or 0
    deleted = seconds_of(metadata.get("deletionTimestamp"))
    phase = status.get("phase", "Pending")
    gated = bool(spec.get("schedulingGates"))
    unschedulable = scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable"
    return PodView(
        uid=metadata["uid"],
        name=metadata["name"],
        owner_uid=_owner(metadata),
        attempt=_number(labels.get(LABEL_ATTEMPT)),
        index=_number(labels.get(LABEL_NODE)),
        phase=_PHASES[_PHASES.index(phase)] if phase in _PHASES else "Unknown",
        created=seconds_of(metadata.get("creationTimestamp")) or 0.0,
        node=_shared(spec.get("nodeName")),
        ip=status.get("podIP") or None,
        deleting_since=None if deleted is None else deleted - grace,
        grace_seconds=float(grace if deleted is not None else spec.get("terminationGracePeriodSeconds") or 0),
        gated=gated,
        unschedulable=_cut(scheduled.get("message")) if unschedulable and not gated else "",
        disrupted=disrupted.get("reason") or "DisruptionTarget" if disrupted.get("status") == "True" else "",
        reason=_shared(status.get("reason")) or "",
        message=_cut(status.get("message")),
        qos=_shared(status.get("qosClass")) or "",
        containers=tuple(_containers(spec, status)),
    )


def child_view(body: Object) -> ChildView:
    """Any other child."""
    metadata = body["metadata"]
    return ChildView(
        kind=sys.intern(body["kind"]),
        name=metadata["name"],
        uid=metadata["uid"],
        owner_uid=_owner(metadata),
        attempt=_number(metadata.get("labels", {}).get(LABEL_ATTEMPT)),
        content=metadata.get("annotations", {}).get(ANNOTATION_CONTENT, ""),
        deleting=metadata.get("deletionTimestamp") is not None,
    )


def _containers(spec: Object, status: Object) -> list[ContainerView]:
    """In the pod's order. The kubelet's statuses are absent until it has seen the pod, and sorted by name then."""
    statuses = {each.get("name"): each for each in status.get("containerStatuses", ())}
    views = []
    for container in spec.get("containers", ()):
        name = container["name"]
        found = statuses.get(name, {})
        state = found.get("state", {})
        waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
        views.append(
            ContainerView(
                name=sys.intern(name),
                running="running" in state,
                ready=bool(found.get("ready")),
                restarts=found.get("restartCount", 0),
                waiting_reason=_shared(waiting.get("reason")),
                waiting_message=_cut(waiting.get("message")),
                exit_code=ended.get("exitCode"),
                finished=seconds_of(ended.get("finishedAt")),
                termination_message=_cut(ended.get("message"), LARGEST_REPORT),
            )
        )
    return views


def _owner(metadata: Object) -> str:
    owners = (each["uid"] for each in metadata.get("ownerReferences", ()) if each.get("controller"))
    return _shared(next(owners, "")) or ""


def _number(text: Any) -> int:
    """A label's number; -1 where somebody put something else: no attempt and no node has it."""
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() else -1


def _cut(text: Any, limit: int = LARGEST_MESSAGE) -> str:
    return text[:limit] if isinstance(text, str) else ""


def _shared(text: str | None) -> str | None:
    """One copy of what thousands of pods repeat."""
    return sys.intern(text) if text else None
