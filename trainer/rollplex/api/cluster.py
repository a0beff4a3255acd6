"""The cluster part of a job: what the operator makes pods from. ``rollplex train`` reads only hardware and numa."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rollplex.api.base import Quantity, Section, WayOut

Name = Annotated[
    str,
    Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$", max_length=253),
    WayOut("write lower-case letters, digits, '-' and '.'"),
]
MountPath = Annotated[
    str,
    Field(pattern=r"^(/([^/:.][^/:]*|\.[^/:.][^/:]*|\.\.[^/:]+))+$", max_length=512),
    WayOut("a mount path begins with / and has no '.', '..', ':' or '/' at its end"),
]
# Where every rank container has something of its own.
TAKEN_PATHS = ("/etc/rollplex", "/dev/shm")

# NUMA nodes of the usual server of each profile, where the job does not say; the operator's profiles hold the rest.
NUMA_NODES = {"h800": 2, "h100": 2, "h200": 2, "b200": 2, "generic": 1, "cpu": 1}


class HardwareSpec(Section):
    """What one node offers; all but ranksPerNode has its default from the profile."""

    profile: Literal["h800", "h100", "h200", "b200", "generic", "cpu"] = Field(
        "generic", description="Kind of node; with cpu the ranks are processes."
    )
    ranks_per_node: int = Field(8, description="Ranks of a node, one for each of its GPUs.", ge=1, le=64)
    numa_nodes: int | None = Field(None, description="NUMA nodes of a node; by default the profile's.", ge=1, le=16)
    cpus_per_rank: int | None = Field(
        None,
        description="CPUs of a rank; whole ones, since only those can be exclusive; by default the profile's.",
        ge=1,
        le=512,
    )
    memory_per_rank: Quantity | None = Field(
        None, description="Host memory of a rank, such as 200Gi; by default the profile's."
    )
    gpu_resource: str | None = Field(
        None,
        description="Extended resource of the device plugin, such as nvidia.com/gpu; by default the profile's.",
        min_length=1,
        max_length=253,
    )
    gpu_device_class: Name | None = Field(
        None, description="DeviceClass for DRA, such as gpu.nvidia.com; by default the profile's."
    )

    @property
    def numa_nodes_or_default(self) -> int:
        """NUMA nodes as given, else the profile's."""
        return self.numa_nodes or NUMA_NODES[self.profile]


class NumaSpec(Section):
    """How ranks are kept near their GPUs."""

    pinning: Literal["auto", "container", "process", "none"] = Field(
        "auto",
        description=(
            "container: one container for each NUMA node, min(numaNodes, ranksPerNode) of them; "
            "process: one container, ranks bind themselves; auto: container where the server can."
        ),
    )
    gpu_allocation: Literal["auto", "dra", "devicePlugin"] = Field(
        "auto", description="dra: every container can open every GPU of the node; devicePlugin: exclusive shares."
    )


class VolumeSpec(Section):
    """A claim mounted into every rank container."""

    claim: Name = Field(
        description="A PersistentVolumeClaim of the job's namespace (ReadWriteMany where nodes > 1).", examples=["data"]
    )
    path: MountPath = Field(description="Where it is mounted.", examples=["/data"])
    read_only: bool = Field(False, description="Mount it read-only.")


class NameReferenceSpec(Section):
    """A Secret or a ConfigMap of the job's namespace."""

    name: Name = Field(description="Its name.", examples=["wandb"])
    optional: bool = Field(False, description="Start without it where it does not exist.")


class EnvFromSpec(Section):
    """Environment variables from a Secret or a ConfigMap; give one of the two."""

    prefix: str | None = Field(None, description="Put before every variable's name.", min_length=1, max_length=253)
    secret_ref: NameReferenceSpec | None = Field(None, description="The Secret.")
    config_map_ref: NameReferenceSpec | None = Field(None, description="The ConfigMap.")


# What of runPolicy acts on a job that has pods; the rest of a spec can only be changed while it is suspended.
MUTABLE = (
    *("suspend", "maxRestarts", "startDeadlineSeconds", "activeDeadlineSeconds", "terminationGraceSeconds"),
    *("ttlSecondsAfterFinished", "cleanPods", "disruptionBudget"),
)


class RunPolicySpec(Section):
    """Starting, restarting, stopping and tidying up."""

    suspend: bool = Field(False, description="Save a checkpoint and give the nodes back until it is false again.")
    max_restarts: int = Field(
        5, description="Restarts after faults before the job fails; disruptions do not count.", ge=0, le=10000
    )
    restart: Literal["inPlace", "newPods"] = Field(
        "inPlace", description="Restart containers where the server can, or always make new pods."
    )
    start_deadline_seconds: int = Field(
        1800, description="A job whose ranks have not started by then fails.", ge=1, le=31536000
    )
    active_deadline_seconds: int | None = Field(
        None, description="A job that ran for so long fails.", ge=1, le=31536000
    )
    termination_grace_seconds: int = Field(
        300, description="Time for the last checkpoint after SIGTERM.", ge=1, le=86400
    )
    ttl_seconds_after_finished: int | None = Field(
        None, description="A finished job is deleted after so long.", ge=0, le=31536000
    )
    clean_pods: Literal["running", "all", "none"] = Field(
        "running", description="Pods that are deleted when the job ends."
    )
    disruption_budget: bool = Field(False, description="Make a PodDisruptionBudget that lets no pod be evicted.")


class SchedulingSpec(Section):
    """Queue and gang."""

    gang: Literal["auto", "kueue", "native", "coscheduling", "volcano", "none"] = Field(
        "auto", description="Who sees to it that all pods of the job start or none."
    )
    queue: Name | None = Field(None, description="Queue that admits the job.")
    priority_class_name: Name | None = Field(None, description="PriorityClass of the pods.")
