"""Who sees to it that all pods of an attempt start or none: Kueue, the scheduler's own PodGroup, coscheduling, Volcano.

A group is made for each attempt and never used again: what one of them remembers of the last attempt's pods (counts,
failures, an admission that is over) must not touch the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rollplex.api.cluster import SchedulingSpec
from rollplex.api.errors import Fault
from rollplex_operator.observation import Server

Gang = Literal["kueue", "native", "coscheduling", "volcano", "none"]

KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
KUEUE_GROUP = "kueue.x-k8s.io/pod-group-name"
KUEUE_COUNT = "kueue.x-k8s.io/pod-group-total-count"
KUEUE_RETRIABLE = "kueue.x-k8s.io/retriable-in-group"
COSCHEDULING_GROUP = "scheduling.x-k8s.io/pod-group"
VOLCANO_GROUP = "scheduling.k8s.io/group-name"

# what would put single pods into a queue or another gang, past the job
RESERVED = frozenset({KUEUE_QUEUE, KUEUE_GROUP, KUEUE_COUNT, KUEUE_RETRIABLE, COSCHEDULING_GROUP, VOLCANO_GROUP})

_NEEDS = {
    "kueue": "Kueue",
    "native": "PodGroup of scheduling.k8s.io/v1beta1 (feature gate GenericWorkload)",
    "coscheduling": "PodGroup of scheduling.x-k8s.io (the scheduler plugin coscheduling)",
    "volcano": "PodGroup of scheduling.volcano.sh (Volcano)",
}


@dataclass(frozen=True, slots=True)
class Wiring:
    """What makes a pod a member."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)


def choose(spec: SchedulingSpec, nodes: int, server: Server) -> Gang:
    """As asked for, else a queue's own gang, else the scheduler's.

    Coscheduling and Volcano are never chosen by themselves: their kinds on the server do not say that the scheduler
    that places these pods heeds them.
    """
    if spec.gang != "auto":
        return spec.gang
    if spec.queue is not None:
        return "kueue"
    return "native" if server.native_gang and nodes > 1 else "none"


def faults(spec: SchedulingSpec, nodes: int, server: Server) -> Iterator[Fault]:
    """A gang that the server does not have."""
    gang = choose(spec, nodes, server)
    offered = {
        "kueue": server.kueue,
        "native": server.native_gang,
        "coscheduling": server.coscheduling,
        "volcano": server.volcano,
    }
    if not offered.get(gang, True):
        what = f"{gang} needs {_NEEDS[gang]}, which this server does not have"
        if spec.gang == "auto":
            yield Fault("spec.scheduling.queue", f'"{spec.queue}": {what}; install it, or leave the queue out')
        else:
            yield Fault("spec.scheduling.gang", f"{what}; install it, or use auto")


def group_name(job_name: str, attempt: int) -> str:
    """Name of the PodGroup of an attempt."""
    return f"{job_name}-{attempt}"


def wiring(gang: Gang, spec: SchedulingSpec, job_name: str, uid: str, attempt: int, nodes: int) -> Wiring:
    """What the pods of an attempt carry."""
    name = group_name(job_name, attempt)
    if gang == "kueue":
        # Kueue's Workload has the group's name and outlives the pods a little: a job that was deleted and made again
        # must not meet the last one's, so its uid is part of the name
        labels = {KUEUE_QUEUE: str(spec.queue), KUEUE_GROUP: f"{job_name}-{uid[:5]}-{attempt}"}
        # one failed pod ends the group: its replacement belongs to the next attempt, so Kueue need not keep quota and
        # finalizers for one
        return Wiring(labels, {KUEUE_COUNT: str(nodes), KUEUE_RETRIABLE: "false"})
    if gang == "native":
        return Wiring(spec={"schedulingGroup": {"podGroupName": name}})
    if gang == "coscheduling":
        # the scheduler's name is the cluster's affair (podTemplate): the plugin may be in the default one
        return Wiring({COSCHEDULING_GROUP: name})
    if gang == "volcano":
        return Wiring(annotations={VOLCANO_GROUP: name}, spec={"schedulerName": "volcano"})
    return Wiring()


def group(gang: Gang, spec: SchedulingSpec, job_name: str, attempt: int, nodes: int) -> dict[str, Any] | None:
    """The gang object of an attempt; Kueue makes its own, from the pods."""
    priority = {} if spec.priority_class_name is None else {"priorityClassName": spec.priority_class_name}
    body: dict[str, Any]
    if gang == "native":
        version = "scheduling.k8s.io/v1beta1"
        # a step needs every rank: preempting one pod takes the others' work too
        body = {"schedulingPolicy": {"gang": {"minCount": nodes}}, "disruptionMode": {"all": {}}, **priority}
    elif gang == "coscheduling":
        version, body = "scheduling.x-k8s.io/v1alpha1", {"minMember": nodes}
    elif gang == "volcano":
        queue = {} if spec.queue is None else {"queue": spec.queue}
        version, body = "scheduling.volcano.sh/v1beta1", {"minMember": nodes, **queue, **priority}
    else:
        return None
    return {
        "apiVersion": version,
        "kind": "PodGroup",
        "metadata": {"name": group_name(job_name, attempt)},
        "spec": body,
    }
