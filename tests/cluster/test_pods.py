"""What the server keeps of the pods that are made: situation 29, and GPUs by NUMA node on the real scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.client import Object
from tests.cluster.jobs import on_nodes
from tests.cluster.situation import Situation

GPUS = {"profile": "h100", "ranksPerNode": 8, "cpusPerRank": 4, "memoryPerRank": "10Gi"}
CLASS, DRIVER = "gpu.nvidia.com", "gpu.example.com"


def quantity(text: str) -> int:
    for unit, factor in (("Ki", 2**10), ("Mi", 2**20), ("Gi", 2**30), ("Ti", 2**40)):
        if text.endswith(unit):
            return int(text.removesuffix(unit)) * factor
    return int(text)


def environment(container: Object) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in container.get("env", [])}


def assert_shares_memory(pod: Object, memory_per_rank: int) -> None:
    """One memory-backed /dev/shm in all containers, counted in their limits, and one PID namespace."""
    spec = pod["spec"]
    assert spec["shareProcessNamespace"] is True
    assert spec["automountServiceAccountToken"] is False
    memory = [volume for volume in spec["volumes"] if volume.get("emptyDir", {}).get("medium") == "Memory"]
    assert len(memory) == 1
    for container in spec["containers"]:
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        assert mounts["/dev/shm"] == memory[0]["name"]
        assert environment(container)["NCCL_GRAPH_REGISTER"] == "0"
        assert container["resources"]["limits"] == container["resources"]["requests"]
    limits = sum(quantity(container["resources"]["limits"]["memory"]) for container in spec["containers"])
    assert limits == 8 * memory_per_rank + quantity(memory[0]["emptyDir"]["sizeLimit"])


def test_case_29_pods_of_one_container(situation: Situation) -> None:
    situation.create(
        hardware=GPUS,
        numa={"pinning": "process", "gpuAllocation": "devicePlugin"},
        nodes=1,
        training={"promptsPerStep": 8},
    )
    situation.wait("job", "Running")
    [pod] = situation.pods()
    assert_shares_memory(pod, 10 * 2**30)
    [container] = pod["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert pod["status"]["qosClass"] == "Guaranteed"


@pytest.fixture
def gpus(bare: Situation) -> Iterator[str]:
    """Two nodes of eight GPUs, four a NUMA node, by ResourceSlices; the label value that chooses them."""
    own = f"{bare.namespace}-gpu"
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    bare.client.create("deviceclasses", {"metadata": {"name": CLASS}, "spec": {"selectors": [selector]}})
    nodes = bare.kubelet.add_nodes(own, 2)
    for node in nodes:
        # numbered across the NUMA nodes, so that taking the first ones would not do
        devices = [
            {"name": f"gpu-{gpu}", "attributes": {"resource.kubernetes.io/numaNode": {"int": gpu % 2}}}
            for gpu in range(8)
        ]
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
        bare.client.create("resourceslices", {"metadata": {"name": node}, "spec": spec})
    yield own
    for node in nodes:
        bare.client.delete("resourceslices", node)
    bare.client.delete("deviceclasses", CLASS)


def start_with_claims(situation: Situation, own: str, **spec: Any) -> None:
    situation.start_operator()  # it asks for device classes when it starts
    hardware = {**GPUS, **spec.pop("hardware", {})}
    training = {"promptsPerStep": 16}
    situation.create(hardware=hardware, podTemplate=on_nodes(own), training=training, **spec)
    situation.wait("job", "Running")


def test_dra_offers_every_container_all_gpus_of_the_node(bare: Situation, gpus: str) -> None:
    start_with_claims(bare, gpus, parallelism={"train": {"tensor": 8}, "rollout": {"tensor": 4}})
    assert bare.status()["numa"] == {"pinning": "container", "gpuAllocation": "dra"}
    for pod in bare.pods():
        assert_shares_memory(pod, 10 * 2**30)
        assert len(pod["spec"]["containers"]) == 2
        for container in pod["spec"]["containers"]:
            # the whole claim, so that a tensor group can span the containers
            assert container["resources"]["claims"] == [{"name": pod["spec"]["resourceClaims"][0]["name"]}]
    claims = bare.client.list("resourceclaims")
    assert len(claims) == 2
    for claim in claims:
        results = claim["status"]["allocation"]["devices"]["results"]
        assert {result["device"] for result in results} == {f"gpu-{gpu}" for gpu in range(8)}
        for result in results:
            numa = result["request"].removeprefix("numa").partition("/")[0]
            assert int(result["device"].removeprefix("gpu-")) % 2 == int(numa)
    bare.check()


def test_dra_takes_part_of_a_node_evenly(bare: Situation, gpus: str) -> None:
    start_with_claims(bare, gpus, nodes=1, hardware={"ranksPerNode": 4})
    [claim] = bare.client.list("resourceclaims")
    devices = [
        int(result["device"].removeprefix("gpu-")) for result in claim["status"]["allocation"]["devices"]["results"]
    ]
    assert sorted(device % 2 for device in devices) == [0, 0, 1, 1]
    bare.check()
