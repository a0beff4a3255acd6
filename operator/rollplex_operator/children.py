"""What a job becomes on the server: pods, service, config map, and what its budget, gang and GPUs need. Pure.

The same job, attempt and server give the same manifests, byte for byte: a child is written again only where the hash of
what it was made from differs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from rollplex.api.errors import Fault, JobError
from rollplex.api.job import API_VERSION, KIND, RollplexJob
from rollplex.api.load import resolved_yaml
from rollplex_operator import gang, numa, profiles, template
from rollplex_operator import pods as building
from rollplex_operator.decision import Manifest
from rollplex_operator.names import (
    ANNOTATION_CONTENT,
    JOB_FILE,
    LABEL_ATTEMPT,
    LABEL_JOB,
    LABEL_NODE,
    LABEL_UID,
    METRICS_PORT,
    RAY_HEAD_PORT,
)
from rollplex_operator.observation import JobView, Server, Settings
from rollplex_operator.pods import Resolved, pod_name
from rollplex_operator.template import template_faults

__all__ = ["Resolved", "faults", "others", "pod_name", "pods", "resolve", "template_faults"]


def resolve(job: RollplexJob, server: Server) -> Resolved:
    """Every choice that depends on the server; :func:`faults` says which of them it cannot honour."""
    spec = job.spec
    pinning, allocation, containers = numa.choose(spec.numa, _node(job, server))
    policy = spec.run_policy
    in_place = server.restart_all_containers and policy.restart == "inPlace" and policy.max_restarts > 0
    return Resolved(pinning, allocation, containers, gang.choose(spec.scheduling, spec.nodes, server), in_place)


def faults(job: RollplexJob, server: Server, settings: Settings) -> list[Fault]:
    """What keeps a job whose spec is right from becoming pods on this server."""
    spec = job.spec
    found = [*profiles.faults(spec.hardware), *numa.faults(spec.numa, _node(job, server))]
    found += gang.faults(spec.scheduling, spec.nodes, server)
    if spec.image is None and not settings.default_image:
        found.append(
            Fault(
                "spec.image", "is missing, and this operator has no default; name a trainer image, or set the default"
            )
        )
    return found + template_faults(job)


def pods(
    view: JobView, job: RollplexJob, resolved: Resolved, attempt: int, indexes: Iterable[int], settings: Settings
) -> tuple[Manifest, ...]:
    """The pods of an attempt, one for each index of a node.

    Raises:
        JobError: the job names no image and there is no default, or its template changes what it may not.
    """
    image = job.spec.image or settings.default_image
    if not image:
        raise JobError.at("spec.image", "is missing, and this operator has no default; name a trainer image")
    if wrong := template_faults(job):
        raise JobError(wrong)
    base = building.base(job, resolved, attempt, image=image, settings=settings)
    member = gang.wiring(resolved.gang, job.spec.scheduling, view.name, view.uid, attempt, job.spec.nodes)
    base["spec"] |= member.spec
    base = template.merged(job, base, resolved.containers)
    found = base["metadata"]
    labels = {**(found.get("labels") or {}), **member.labels}
    annotations = {**(found.get("annotations") or {}), **member.annotations}
    return tuple(_pod(view, base["spec"], labels, annotations, attempt, index) for index in indexes)


def others(
    view: JobView, job: RollplexJob, resolved: Resolved, attempt: int, settings: Settings
) -> tuple[Manifest, ...]:
    """Everything but the pods, to be applied before them."""
    spec, selector = job.spec, {LABEL_JOB: view.name, LABEL_UID: view.uid}
    wanted = [
        _object(
            "v1",
            "ConfigMap",
            view.name,
            {"data": {JOB_FILE: _job_file(job.model_dump_json(by_alias=True, exclude_unset=True))}},
        ),
        _object("v1", "Service", view.name, {"spec": _service(selector)}),
    ]
    if spec.run_policy.disruption_budget:
        # a number of pods, since Kubernetes cannot look up how many a RollplexJob should have
        budget = {"minAvailable": spec.nodes, "selector": {"matchLabels": selector}}
        wanted.append(_object("policy/v1", "PodDisruptionBudget", view.name, {"spec": budget}))
    group = gang.group(resolved.gang, spec.scheduling, view.name, attempt, spec.nodes)
    if group is not None:
        wanted.append(group)
    hardware = profiles.hardware(spec.hardware, spec.nodes)
    if resolved.gpu_allocation == "dra" and hardware.gpu_device_class is not None:
        claim = numa.claim_spec(hardware.ranks, resolved.containers, hardware.gpu_device_class)
        wanted.append(
            _object(
                "resource.k8s.io/v1",
                "ResourceClaimTemplate",
                numa.claim_name(view.name, attempt),
                {"spec": {"spec": claim}},
            ),
        )
    return tuple(_child(view, attempt, each) for each in wanted)


def _node(job: RollplexJob, server: Server) -> numa.Node:
    spec = job.spec
    hardware = profiles.hardware(spec.hardware, spec.nodes)
    return numa.Node(
        ranks=hardware.ranks,
        numa_nodes=hardware.numa_nodes,
        tensor=max(spec.parallelism.train.tensor, spec.parallelism.rollout.tensor),
        device_class=hardware.gpu_device_class,
        offered=hardware.gpu_device_class in server.device_classes,
    )


def _pod(
    view: JobView,
    spec: Mapping[str, Any],
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    attempt: int,
    index: int,
) -> Manifest:
    """The pod of one node: the others' but for what tells it apart."""
    own = [{"name": "ROLLPLEX_ATTEMPT", "value": str(attempt)}, {"name": "ROLLPLEX_NODE", "value": str(index)}]
    containers = [
        {**each, "env": own + each["env"]} if building.is_rank(each["name"]) else each for each in spec["containers"]
    ]
    name = pod_name(view.name, index)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": view.namespace,
            "labels": {**labels, **_labels(view, attempt), LABEL_NODE: str(index)},
            **({"annotations": dict(annotations)} if annotations else {}),
            "ownerReferences": [_owner(view)],
        },
        "spec": {**spec, "hostname": name, "subdomain": view.name, "containers": containers},
    }


@lru_cache(maxsize=512)
def _job_file(job: str) -> str:
    """The job file of a job in JSON. Writing YAML takes 20 ms, and every decision about a job looks at its children."""
    return resolved_yaml(RollplexJob.model_validate_json(job, by_alias=True, by_name=False))


def _service(selector: Mapping[str, str]) -> dict[str, Any]:
    return {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,  # ranks look each other up before any of them is ready
        "selector": dict(selector),
        "ports": [
            {"name": "ray", "port": RAY_HEAD_PORT, "protocol": "TCP"},
            {"name": "metrics", "port": METRICS_PORT, "protocol": "TCP"},
        ],
    }


def _object(version: str, kind: str, name: str, parts: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **parts}


def _child(view: JobView, attempt: int, wanted: Mapping[str, Any]) -> Manifest:
    """A child as the server gets it, with the hash of all that it says."""
    metadata = {
        "name": wanted["metadata"]["name"],
        "namespace": view.namespace,
        "labels": _labels(view, attempt),
        "ownerReferences": [_owner(view)],
    }
    content = json.dumps({**wanted, "metadata": metadata}, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(content.encode()).hexdigest()[:16]
    return {**wanted, "metadata": {**metadata, "annotations": {ANNOTATION_CONTENT: digest}}}


def _labels(view: JobView, attempt: int) -> dict[str, str]:
    return {LABEL_JOB: view.name, LABEL_UID: view.uid, LABEL_ATTEMPT: str(attempt)}


def _owner(view: JobView) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": view.name,
        "uid": view.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
