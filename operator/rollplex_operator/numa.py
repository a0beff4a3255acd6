"""How the ranks of a node are divided between containers, and how these get their GPUs.

DESIGN's pod contract says what each pinning means. This module chooses, and says why a choice cannot be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rollplex.api.cluster import NumaSpec
from rollplex.api.errors import Fault

Pinning = Literal["container", "process", "none"]
GpuAllocation = Literal["dra", "devicePlugin", "none"]

CLAIM = "gpus"  # name of the claim within a pod
LARGEST_CLAIM = 32  # devices of one ResourceClaim, a constant of the API server

_ALLOCATION = "spec.numa.gpuAllocation"


@dataclass(frozen=True, slots=True)
class Node:
    """What the choice depends on. ``device_class`` is None where the ranks have no GPUs."""

    ranks: int
    numa_nodes: int
    tensor: int  # the larger tensor degree
    device_class: str | None
    offered: bool  # whether the server has that device class

    @property
    def containers(self) -> int:
        """Containers of pinning ``container``."""
        return min(self.numa_nodes, self.ranks)

    @property
    def groups_fit(self) -> bool:
        """Whether every tensor group lies within one container's ranks."""
        return self.tensor == 1 or (
            self.ranks % self.containers == 0 and self.ranks // self.containers % self.tensor == 0
        )


def choose(spec: NumaSpec, node: Node) -> tuple[Pinning, GpuAllocation, int]:
    """(pinning, GPU allocation, containers of a pod), as asked for, else as the server allows.

    Exclusive shares of GPUs keep tensor groups out of each other's containers; a claim that all containers share does
    not, and ranks without GPUs have nothing to share but memory.
    """
    allocation: GpuAllocation
    if node.device_class is None:
        allocation = "none"
    elif spec.gpu_allocation == "auto":
        allocation = "dra" if node.offered and node.ranks <= LARGEST_CLAIM else "devicePlugin"
    else:
        allocation = spec.gpu_allocation
    pinning: Pinning
    if spec.pinning == "auto":
        pinning = "container" if allocation != "devicePlugin" or node.groups_fit else "process"
    else:
        pinning = spec.pinning
    return pinning, allocation, node.containers if pinning == "container" else 1


def shares(ranks: int, containers: int) -> tuple[int, ...]:
    """Ranks of each container: equal, or the first ones have one more."""
    return tuple(ranks // containers + (index < ranks % containers) for index in range(containers))


def faults(spec: NumaSpec, node: Node) -> Iterator[Fault]:
    """What was asked for and cannot be had from this server."""
    _, allocation, containers = choose(spec, node)
    given = spec.gpu_allocation
    if node.device_class is None and given != "auto":
        yield Fault(
            _ALLOCATION, f"{given} would not be read, since the ranks of this profile have no GPUs; leave it out"
        )
    elif given == "dra" and not node.offered:
        yield Fault(
            _ALLOCATION,
            f"dra needs DeviceClass {node.device_class}, which this server does not have; install the DRA driver of "
            "the GPUs, name its class in hardware.gpuDeviceClass, or use devicePlugin",
        )
    elif given == "dra" and node.ranks > LARGEST_CLAIM:
        yield Fault(
            _ALLOCATION,
            f"dra: {node.ranks} ranks of a node need as many GPUs, and one claim holds at most {LARGEST_CLAIM}; "
            "use devicePlugin",
        )
    elif containers > 1 and allocation == "devicePlugin" and not node.groups_fit:
        each = node.ranks // node.containers
        yield Fault(
            "spec.numa.pinning",
            f"container gives each of {containers} containers {each} GPUs of its own, since the server has no "
            f"DeviceClass {node.device_class} to share them by, and a tensor group of {node.tensor} would span them; "
            f"install the DRA driver of the GPUs, or use pinning process, or tensor degrees that divide {each}",
        )


def claim_spec(ranks: int, containers: int, device_class: str) -> dict[str, Any]:
    """``spec`` of the ResourceClaim of one pod: a GPU for each rank, for all containers together.

    With several containers the GPUs of each are wanted on the NUMA node of its number, so that a job that takes a part
    of a server gets as many GPUs near each container as it drives. Wanted, not required: where drivers do not tell the
    node, or its GPUs are taken, any other does, and the trainer's preflight reports what became of it.
    """
    if containers == 1:
        exactly = _request(ranks, device_class)
        return {"devices": {"requests": [{"name": "all", "exactly": exactly}]}}
    requests = []
    for index, share in enumerate(shares(ranks, containers)):
        near = {**_request(share, device_class), "selectors": [{"cel": {"expression": _on_numa_node(index)}}]}
        choices = [{"name": "near", **near}, {"name": "any", **_request(share, device_class)}]
        requests.append({"name": f"numa{index}", "firstAvailable": choices})
    return {"devices": {"requests": requests}}


def _request(count: int, device_class: str) -> dict[str, Any]:
    return {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count}


def _on_numa_node(index: int) -> str:
    # without the optional, a device that lacks the attribute would be an error that stops the whole allocation
    return f'device.attributes["resource.kubernetes.io"].?numaNode.orValue(-1) == {index}'


def claim_name(job_name: str, attempt: int) -> str:
    """Name of an attempt's ResourceClaimTemplate. It cannot be changed, and a suspended job may be: one for each."""
    return f"{job_name}-{attempt}"


def claim_of_pod(template: str) -> Mapping[str, Any]:
    """The entry of a pod's ``resourceClaims``."""
    return {"name": CLAIM, "resourceClaimTemplateName": template}
