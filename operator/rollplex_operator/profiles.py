"""Hardware profiles: what one rank asks for on the usual server of each kind, where the job does not say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rollplex.api.base import quantity_bytes
from rollplex.api.cluster import HardwareSpec
from rollplex.api.errors import Fault

GI = 2**30

# NCCL's bootstrap and gloo take the first interface that they like, which on these servers is one of the RDMA network
# (net1, ib0) that has no route to the other pods. Container runtimes call the pod network's interface eth0.
_POD_NETWORK = {"NCCL_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "eth0"}


@dataclass(frozen=True, slots=True)
class Profile:
    """Of one rank; the sizes are bytes. The number of NUMA nodes is ``rollplex.api.cluster.NUMA_NODES``."""

    cpus: int
    memory: int
    shm: int  # of /dev/shm: Ray's objects, gloo's and NCCL's buffers
    gpu_resource: str | None = None
    gpu_device_class: str | None = None
    rdma_resource: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


# Eight GPUs on two sockets of 48 to 64 cores. Four ranks' 80 CPUs leave a socket of 96 to 128 CPUs some for the system,
# and are more than half of it: the kubelet cannot put both containers of a node on one socket. All of these servers are
# sold with 2 TiB. The RDMA resource is the one that NVIDIA's network operator makes unless told otherwise: all adapters
# of the node, shared.
_EIGHT_GPUS = Profile(
    20, 200 * GI, 8 * GI, "nvidia.com/gpu", "gpu.nvidia.com", "rdma/rdma_shared_device_a", _POD_NETWORK
)
PROFILES: Mapping[str, Profile] = {
    "h800": _EIGHT_GPUS,
    "h100": _EIGHT_GPUS,
    "h200": _EIGHT_GPUS,
    "b200": _EIGHT_GPUS,
    "generic": Profile(8, 64 * GI, 8 * GI, "nvidia.com/gpu", "gpu.nvidia.com"),
    "cpu": Profile(2, 4 * GI, 1 * GI),
}


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a job's ranks ask for: the job's own words, else the profile's. ``cpus``, ``memory``, ``shm`` of a rank."""

    ranks: int  # of a node
    numa_nodes: int
    cpus: int
    memory: int
    shm: int
    gpu_resource: str | None
    gpu_device_class: str | None
    rdma_resource: str | None
    environment: Mapping[str, str]


def hardware(spec: HardwareSpec, nodes: int) -> Hardware:
    """The job's hardware. Only a job of several nodes uses RDMA: within one node, ranks talk over NVLink."""
    profile = PROFILES[spec.profile]
    rdma = profile.rdma_resource is not None and nodes > 1
    return Hardware(
        ranks=spec.ranks_per_node,
        numa_nodes=spec.numa_nodes_or_default,
        cpus=spec.cpus_per_rank or profile.cpus,
        memory=profile.memory if spec.memory_per_rank is None else quantity_bytes(spec.memory_per_rank),
        shm=profile.shm,
        # a job's word would not give GPUs to ranks that are processes: faults() refuses it
        gpu_resource=(spec.gpu_resource or profile.gpu_resource) if profile.gpu_resource else None,
        gpu_device_class=(spec.gpu_device_class or profile.gpu_device_class) if profile.gpu_device_class else None,
        rdma_resource=profile.rdma_resource if rdma else None,
        environment=profile.environment if rdma else {},
    )


def faults(spec: HardwareSpec) -> Iterator[Fault]:
    """Names of GPUs where the profile has none."""
    if PROFILES[spec.profile].gpu_resource is None:
        for name, given in (("gpuResource", spec.gpu_resource), ("gpuDeviceClass", spec.gpu_device_class)):
            if given is not None:
                yield Fault(
                    f"spec.hardware.{name}",
                    f'"{given}" would not be read, since ranks of profile {spec.profile} are processes without GPUs; '
                    "leave it out, or use profile generic",
                )


def quantity(size: int) -> str:
    """Bytes as Kubernetes writes them: the largest binary unit that leaves a whole number."""
    for power, unit in ((40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")):
        if size % 2**power == 0:
            return f"{size >> power}{unit}"
    return str(size)
