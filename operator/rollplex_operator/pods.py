"""A pod of a job, before it has a name: its rank containers, and what they share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rollplex.api.job import JobSpec, RollplexJob
from rollplex_operator import gang, numa, profiles
from rollplex_operator.names import CONTAINER, EXIT_RESTART, JOB_MOUNT, METRICS_PORT
from rollplex_operator.observation import Settings

JOB_VOLUME, SHM_VOLUME = "job", "shm"
SHM_MOUNT = "/dev/shm"
# every volume's files belong to it, so that ranks that are not root can write them; docker/trainer.Dockerfile's group
FILE_GROUP = 1000

NEW_PODS = "newPods"  # of runPolicy.restart
IN_PLACE_FEATURE = "RestartAllContainersOnContainerExits"  # as kubelets declare it

_START_PERIOD = 5  # seconds


@dataclass(frozen=True, slots=True)
class Resolved:
    """What the job's ``auto`` became on this server."""

    pinning: numa.Pinning
    gpu_allocation: numa.GpuAllocation
    containers: int  # of a pod
    gang: gang.Gang
    restart_in_place: bool


@dataclass(frozen=True, slots=True)
class _Rank:
    """A rank container. ``environment`` is its own, ``extra`` that of its hardware."""

    index: int
    limits: Mapping[str, str]
    environment: Mapping[str, str]
    extra: Mapping[str, str]
    claim: str | None  # by which it gets its GPUs
    rdma: bool
    restart_in_place: bool


def pod_name(job_name: str, index: int) -> str:
    """Name and hostname of the pod of a node."""
    return f"{job_name}-{index}"


def base(job: RollplexJob, resolved: Resolved, attempt: int, *, image: str, settings: Settings) -> dict[str, Any]:
    """``metadata`` and ``spec`` of a job's pods, before its template, its gang and what tells the pods apart."""
    spec, name = job.spec, job.metadata.name
    hardware = profiles.hardware(spec.hardware, spec.nodes)
    claimed = resolved.gpu_allocation == "dra"
    ranks = []
    for index, share in enumerate(numa.shares(hardware.ranks, resolved.containers)):
        # a container's pages of /dev/shm count as its own memory: each has room for its ranks' part of it
        limits = {
            "cpu": str(share * hardware.cpus),
            "memory": profiles.quantity(share * (hardware.memory + hardware.shm)),
        }
        if resolved.gpu_allocation == "devicePlugin" and hardware.gpu_resource is not None:
            limits[hardware.gpu_resource] = str(share)
        if hardware.rdma_resource is not None:
            limits[hardware.rdma_resource] = "1"
        environment = {
            "ROLLPLEX_CONTAINER": str(index),
            "ROLLPLEX_CONTAINERS": str(resolved.containers),
            "ROLLPLEX_RANKS": str(share),
            "ROLLPLEX_PINNING": resolved.pinning,
            "ROLLPLEX_HEAD": f"{pod_name(name, 0)}.{name}",
            # a captured decode graph would register its buffers with the peers by physical pages, and ours move
            "NCCL_GRAPH_REGISTER": "0",
        }
        ranks.append(
            _Rank(
                index=index,
                limits=limits,
                environment=environment,
                extra=hardware.environment,
                claim=numa.CLAIM if claimed else None,
                rdma=hardware.rdma_resource is not None,
                restart_in_place=resolved.restart_in_place,
            )
        )
    return _pod(
        spec,
        ranks,
        config_map=name,
        shm=profiles.quantity(hardware.ranks * hardware.shm),
        image=image,
        pull_policy=settings.image_pull_policy,
        pull_secrets=settings.image_pull_secrets,
        claims=[numa.claim_of_pod(numa.claim_name(name, attempt))] if claimed else [],
    )


def container_name(index: int) -> str:
    """trainer, trainer-1, ..."""
    return CONTAINER if index == 0 else f"{CONTAINER}-{index}"


def _pod(
    spec: JobSpec,
    ranks: Sequence[_Rank],
    *,
    config_map: str,
    shm: str,
    image: str,
    pull_policy: str | None,
    pull_secrets: Sequence[str],
    claims: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    claimed = list(dict.fromkeys(volume.claim for volume in spec.volumes))
    volumes: list[dict[str, Any]] = [
        {"name": JOB_VOLUME, "configMap": {"name": config_map}},
        {"name": SHM_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": shm}},
    ]
    # numbered: a claim's name may be longer than a volume's
    volumes += [
        {"name": f"claim-{index}", "persistentVolumeClaim": {"claimName": claim}} for index, claim in enumerate(claimed)
    ]
    rdma = any(rank.rdma for rank in ranks)
    body: dict[str, Any] = {
        "restartPolicy": "Never",  # a rank that ends takes its job along: the operator decides what follows
        "terminationGracePeriodSeconds": spec.run_policy.termination_grace_seconds,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,  # else a namespace of hundreds of services fills the environment
        "shareProcessNamespace": True,  # CUDA IPC between containers looks the other process up
        "securityContext": {
            **({} if rdma else {"runAsNonRoot": True}),
            "seccompProfile": {"type": "RuntimeDefault"},
            "fsGroup": FILE_GROUP,
            "fsGroupChangePolicy": "OnRootMismatch",  # not file by file through terabytes at every start
        },
        "volumes": volumes,
        "containers": [_container(spec, rank, image, pull_policy, claimed) for rank in ranks],
    }
    if pull_secrets:
        body["imagePullSecrets"] = [{"name": name} for name in pull_secrets]
    if claims:
        body["resourceClaims"] = [dict(claim) for claim in claims]
    if spec.scheduling.priority_class_name is not None:
        body["priorityClassName"] = spec.scheduling.priority_class_name
    return {"metadata": {"labels": {}, "annotations": {}}, "spec": body}


def _container(
    spec: JobSpec, rank: _Rank, image: str, pull_policy: str | None, claimed: Sequence[str]
) -> dict[str, Any]:
    port = METRICS_PORT + rank.index
    mounts: list[dict[str, Any]] = [
        {"name": JOB_VOLUME, "mountPath": JOB_MOUNT, "readOnly": True},
        {"name": SHM_VOLUME, "mountPath": SHM_MOUNT},
    ]
    mounts += [
        {
            "name": f"claim-{claimed.index(volume.claim)}",
            "mountPath": volume.path,
            **({"readOnly": True} if volume.read_only else {}),
        }
        for volume in spec.volumes
    ]
    environment = [{"name": name, "value": value} for name, value in {**rank.environment, **rank.extra}.items()]
    container: dict[str, Any] = {
        "name": container_name(rank.index),
        "image": image,
        "command": ["rollplex", "pod"],
        "env": environment,
        "ports": [{"name": "metrics" if rank.index == 0 else f"metrics-{rank.index}", "containerPort": port}],
        # requests are filled in from these once the job's template is merged, so that they cannot differ
        "resources": {"limits": dict(rank.limits), **({"claims": [{"name": rank.claim}]} if rank.claim else {})},
        "volumeMounts": mounts,
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "securityContext": _security(rank.rdma),
        **_probes(port, spec.run_policy.start_deadline_seconds),
    }
    if pull_policy is not None:
        container["imagePullPolicy"] = pull_policy
    if spec.env_from:
        container["envFrom"] = [
            source.model_dump(mode="json", by_alias=True, exclude_none=True) for source in spec.env_from
        ]
    if rank.restart_in_place:
        container["restartPolicy"] = "Never"
        container["restartPolicyRules"] = [
            {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [EXIT_RESTART]}}
        ]
    return container


def _security(rdma: bool) -> dict[str, Any]:
    """Registering memory with an RDMA adapter needs IPC_LOCK, and a capability acts for root only: Kubernetes has no
    ambient ones. So ranks that use RDMA are root, with this capability and no other."""
    drop: dict[str, Any] = {"drop": ["ALL"]}
    if not rdma:
        return {"allowPrivilegeEscalation": False, "capabilities": drop}
    return {"allowPrivilegeEscalation": False, "runAsUser": 0, "capabilities": {**drop, "add": ["IPC_LOCK"]}}


def _probes(port: int, start_deadline: int) -> dict[str, Any]:
    """The supervisor answers, not the training: a long step is no fault, a stuck rank is the supervisor's to see."""
    get = {"httpGet": {"path": "/healthz", "port": port}, "timeoutSeconds": 5}
    return {
        # the start deadline is the operator's to enforce, with a reason: the kubelet must not be faster
        "startupProbe": {
            **get,
            "periodSeconds": _START_PERIOD,
            "failureThreshold": math.ceil(start_deadline / _START_PERIOD) + 1,
        },
        # three minutes: a machine that swaps or writes a checkpoint answers late; one that is dead saves nothing, so
        # it is not given the grace of a checkpoint
        "livenessProbe": {**get, "periodSeconds": 20, "failureThreshold": 9, "terminationGracePeriodSeconds": 30},
        "readinessProbe": {**get, "periodSeconds": 10, "failureThreshold": 3},
    }


def with_requests(pod: Mapping[str, Any]) -> dict[str, Any]:
    """The pod with what Kubernetes would fill in: a container with a limit and no request requests the limit."""
    spec = dict(pod["spec"])
    for kind in ("containers", "initContainers"):
        if kind in spec:
            spec[kind] = [_requesting(container) for container in spec[kind]]
    return {**pod, "spec": spec}


def _requesting(container: Mapping[str, Any]) -> dict[str, Any]:
    resources = container.get("resources", {})
    limits = resources.get("limits")
    if not limits:
        return dict(container)
    return {**container, "resources": {**resources, "requests": {**limits, **resources.get("requests", {})}}}


def is_rank(name: str) -> bool:
    """Whether a container is one of the ranks'."""
    return name == CONTAINER or (name.startswith(f"{CONTAINER}-") and name.removeprefix(f"{CONTAINER}-").isdigit())
