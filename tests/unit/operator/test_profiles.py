"""Numbers of a rank, by profile and by the job's own word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollplex.api.base import quantity_bytes
from rollplex.api.cluster import NUMA_NODES, HardwareSpec
from rollplex_operator import profiles

GPU_SERVERS = ("h800", "h100", "h200", "b200")


def test_every_profile_of_the_job_is_known() -> None:
    assert set(profiles.PROFILES) == set(NUMA_NODES)


@pytest.mark.parametrize("profile", GPU_SERVERS)
@pytest.mark.parametrize("cores", [48, 52, 56, 64])
def test_a_socket_holds_one_container_and_never_two(profile: str, cores: int) -> None:
    hardware = profiles.hardware(HardwareSpec(profile=profile), nodes=4)  # type: ignore[arg-type]
    container, socket = hardware.cpus * hardware.ranks // hardware.numa_nodes, 2 * cores
    assert socket / 2 < container < socket


def test_the_jobs_own_numbers_win() -> None:
    spec = HardwareSpec(
        profile="h800",
        ranks_per_node=4,
        numa_nodes=4,
        cpus_per_rank=7,
        memory_per_rank="3Gi",
        gpu_resource="example.com/gpu",
        gpu_device_class="gpu.example.com",
    )
    found = profiles.hardware(spec, nodes=2)
    assert (found.ranks, found.numa_nodes, found.cpus, found.memory) == (4, 4, 7, 3 * 2**30)
    assert (found.gpu_resource, found.gpu_device_class) == ("example.com/gpu", "gpu.example.com")


@pytest.mark.parametrize(("profile", "nodes", "rdma"), [("h800", 2, True), ("h800", 1, False), ("generic", 2, False)])
def test_rdma_is_for_several_nodes(profile: str, nodes: int, rdma: bool) -> None:
    found = profiles.hardware(HardwareSpec(profile=profile), nodes)  # type: ignore[arg-type]
    assert (found.rdma_resource is not None, "NCCL_SOCKET_IFNAME" in found.environment) == (rdma, rdma)


def test_gpus_of_the_cpu_profile_are_refused() -> None:
    spec = HardwareSpec(profile="cpu", gpu_resource="nvidia.com/gpu", gpu_device_class="gpu.nvidia.com")
    assert [fault.path for fault in profiles.faults(spec)] == [
        "spec.hardware.gpuResource",
        "spec.hardware.gpuDeviceClass",
    ]
    assert profiles.hardware(spec, 1).gpu_resource is None
    assert list(profiles.faults(HardwareSpec(profile="generic", gpu_resource="amd.com/gpu"))) == []


@given(st.integers(1, 2**45))
def test_quantity_is_exact(size: int) -> None:
    assert quantity_bytes(profiles.quantity(size)) == size
