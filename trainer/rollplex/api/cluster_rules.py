"""Rules about a job that becomes pods; they stand in the table of :mod:`rollplex.api.rules`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rollplex.api.cluster import TAKEN_PATHS
from rollplex.api.errors import Fault
from rollplex.api.job import JobSpec
from rollplex.api.mounts import DOTTED, covering, files_of, mounts_of


def tensor_group_stays_on_its_node(spec: JobSpec, _: int) -> Iterator[Fault]:
    """`hardware.ranksPerNode` is divisible by both tensor degrees: no tensor group crosses a node."""
    for path, tensor in _tensors(spec):
        if spec.hardware.ranks_per_node % tensor:
            yield Fault(
                path,
                f"{tensor} does not divide hardware.ranksPerNode {spec.hardware.ranks_per_node}, so a tensor group "
                "would cross nodes; choose a divisor",
            )


def tensor_group_stays_in_its_container(spec: JobSpec, _: int) -> Iterator[Fault]:
    """With `pinning: container` and `gpuAllocation: devicePlugin` no tensor group spans containers."""
    if (spec.numa.pinning, spec.numa.gpu_allocation) != ("container", "devicePlugin"):
        return
    ranks = spec.hardware.ranks_per_node
    containers = min(spec.hardware.numa_nodes_or_default, ranks)
    tensor, even = max(tensor for _, tensor in _tensors(spec)), ranks % containers == 0
    if tensor > 1 and not (even and (ranks // containers) % tensor == 0):
        yield Fault(
            "spec.numa.gpuAllocation",
            f"devicePlugin with pinning container gives each of {containers} containers {ranks // containers} GPUs of "
            f"its own, and a tensor group of {tensor} would span them; use gpuAllocation dra, or pinning process, or "
            f"tensor degrees that divide {ranks // containers}",
        )


def files_lie_on_volumes(spec: JobSpec, _: int) -> Iterator[Fault]:
    """Every file that the job names lies on a volume (or on a mount of the pod template's container `trainer`)."""
    mounts = mounts_of(spec)
    for path, file in files_of(spec):
        if not file.startswith("/"):
            yield Fault(path, f'"{file}" is relative; on the cluster write an absolute path under one of spec.volumes')
        elif re.search(DOTTED, file):
            yield Fault(path, f"\"{file}\" has '.', '..' or an empty part in it; write a plain absolute path")
        elif covering(mounts, file) is None:
            where = ", ".join(mount.path for mount in mounts) or "none"
            yield Fault(path, f'"{file}" lies on no volume (mounted: {where}); add its claim to spec.volumes')


def checkpoint_outlives_its_pod(spec: JobSpec, _: int) -> Iterator[Fault]:
    """`checkpoint.path` is set, and its volume can be written."""
    file = spec.checkpoint.path
    if file is None:
        yield Fault(
            "spec.checkpoint.path", "is missing; on the cluster it must lie on a volume, or a restart loses the run"
        )
        return
    mount = covering(mounts_of(spec), file)
    if mount is not None and mount.read_only:
        yield Fault("spec.checkpoint.path", f'"{file}" lies on a read-only volume; take readOnly off')


def volumes_leave_taken_paths(spec: JobSpec, _: int) -> Iterator[Fault]:
    """No volume is mounted at `/etc/rollplex` or `/dev/shm`, which every rank container has already."""
    for index, volume in enumerate(spec.volumes):
        if volume.path in TAKEN_PATHS:
            yield Fault(
                f"spec.volumes.{index}.path",
                f"{volume.path} is taken in every rank container; choose another path",
            )


def queue_is_read(spec: JobSpec, _: int) -> Iterator[Fault]:
    """`scheduling.queue` goes with a `gang` that reads it; `gang: kueue` needs one."""
    gang, queue = spec.scheduling.gang, spec.scheduling.queue
    if gang == "kueue" and queue is None:
        yield Fault("spec.scheduling.queue", "is missing; gang kueue needs the name of a LocalQueue of the namespace")
    if gang in ("native", "coscheduling", "none") and queue is not None:
        yield Fault(
            "spec.scheduling.queue", f'"{queue}" would not be read with gang {gang}; leave it out, or use kueue'
        )


def _tensors(spec: JobSpec) -> tuple[tuple[str, int], ...]:
    train, rollout = spec.parallelism.train.tensor, spec.parallelism.rollout.tensor
    return (("spec.parallelism.train.tensor", train), ("spec.parallelism.rollout.tensor", rollout))
