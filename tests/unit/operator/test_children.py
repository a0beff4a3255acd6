"""All that a job becomes: complete, determined, and within Kubernetes' limits for every job that validates."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rollplex.api import JobError, RollplexJob, job_from, resolved_yaml
from rollplex.api.base import quantity_bytes
from rollplex_operator import children
from rollplex_operator.observation import Server, Settings
from tests.unit.operator.child_jobs import EVERYTHING, SETTINGS, UID, document, gpu_job, make_job, view_of

LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def all_of(job: RollplexJob, server: Server = EVERYTHING, attempt: int = 1) -> list[Any]:
    resolved, view = children.resolve(job, server), view_of(job)
    pods = children.pods(view, job, resolved, attempt, range(job.spec.nodes), SETTINGS)
    return [*children.others(view, job, resolved, attempt, SETTINGS), *pods]


@st.composite
def jobs(draw: st.DrawFn) -> RollplexJob:
    """Any job of few nodes that validates, by its name, hardware, NUMA, gang and run policy."""
    ranks = draw(st.sampled_from([1, 2, 3, 4, 8, 16]))
    tensor = draw(st.sampled_from([degree for degree in (1, 2, 4, 8) if ranks % degree == 0]))
    nodes = draw(st.integers(1, 4))
    # profile b200 has as many NUMA nodes as h100, and so on: what matters is one of each kind
    hardware = {"profile": draw(st.sampled_from(["h800", "generic", "cpu"])), "ranksPerNode": ranks}
    optional = {
        "numaNodes": draw(st.none() | st.integers(1, 16)),
        "cpusPerRank": draw(st.none() | st.integers(1, 512)),
        "memoryPerRank": draw(st.none() | st.sampled_from(["200Gi", "1.5Ti", "1001M", "77777"])),
    }
    pinning = draw(st.sampled_from(["auto", "process", "none"] + ["container"] * (tensor == 1)))
    name = draw(st.from_regex(r"[a-z]([-a-z0-9]{0,48}[a-z0-9])?", fullmatch=True))
    return job_from(
        document(
            name,
            nodes=nodes,
            training={"steps": 1, "promptsPerStep": nodes * ranks // tensor},
            parallelism={"train": {"tensor": tensor}},
            hardware=hardware | {key: value for key, value in optional.items() if value is not None},
            numa={"pinning": pinning},
            scheduling=draw(st.sampled_from([{}, {"queue": "q"}, {"gang": "coscheduling"}, {"gang": "volcano"}])),
            runPolicy={"disruptionBudget": draw(st.booleans()), "maxRestarts": draw(st.integers(0, 2))},
        ),
        context="cluster",
    )


servers = st.builds(
    Server,
    restart_all_containers=st.booleans(),
    native_gang=st.booleans(),
    kueue=st.just(True),
    coscheduling=st.just(True),
    volcano=st.just(True),
    device_classes=st.sampled_from([frozenset(), frozenset({"gpu.nvidia.com"})]),
)


@settings(deadline=None)  # a cold start reads all of the models
@given(jobs(), servers, st.integers(1, 99999))
def test_every_job_that_validates_becomes_sound_pods(job: RollplexJob, server: Server, attempt: int) -> None:
    assert children.faults(job, server, SETTINGS) == []
    made = all_of(job, server, attempt)
    names = set()
    for each in made:
        metadata = each["metadata"]
        names.add((each["apiVersion"], each["kind"], metadata["name"]))
        assert DNS_LABEL.fullmatch(metadata["name"])
        assert all(LABEL_VALUE.fullmatch(value) for value in metadata["labels"].values())
        assert metadata["labels"]["rollplex.io/attempt"] == str(attempt)
        assert metadata["ownerReferences"][0]["uid"] == metadata["labels"]["rollplex.io/job-uid"] == UID
    assert len(names) == len(made)
    for index, pod in enumerate(each for each in made if each["kind"] == "Pod"):
        assert pod["metadata"]["name"] == pod["spec"]["hostname"] == children.pod_name(job.metadata.name, index)
        assert pod["metadata"]["labels"]["rollplex.io/node"] == str(index)
        assert_adds_up(job, pod["spec"])


def assert_adds_up(job: RollplexJob, spec: Any) -> None:
    """Guaranteed, whole CPUs, all ranks in some container, memory for them and for what they keep in /dev/shm."""
    hardware, cpus, ranks, memory, gpus = job.spec.hardware, 0, 0, 0, 0
    for container in spec["containers"]:
        resources = container["resources"]
        assert resources["requests"] == resources["limits"]
        share = next(int(each["value"]) for each in container["env"] if each["name"] == "ROLLPLEX_RANKS")
        assert int(resources["limits"]["cpu"]) >= share >= 1
        cpus += int(resources["limits"]["cpu"])
        memory += quantity_bytes(resources["limits"]["memory"])
        gpus += int(resources["limits"].get("nvidia.com/gpu", 0))
        ranks += share
        ports = [each["containerPort"] for each in container["ports"]]
        assert all(port in range(9464, 9480) for port in ports)
    shm = next(each["emptyDir"] for each in spec["volumes"] if each["name"] == "shm")
    assert shm["medium"] == "Memory"
    assert ranks == hardware.ranks_per_node
    if hardware.cpus_per_rank is not None:
        assert cpus == ranks * hardware.cpus_per_rank
    if hardware.memory_per_rank is not None:
        assert memory == ranks * quantity_bytes(hardware.memory_per_rank) + quantity_bytes(shm["sizeLimit"])
    claimed = "resourceClaims" in spec
    assert gpus == (0 if claimed or hardware.profile == "cpu" else ranks)
    assert all(("claims" in container["resources"]) is claimed for container in spec["containers"])


@settings(deadline=None)  # a cold start reads all of the models
@given(jobs(), servers)
def test_the_same_input_gives_the_same_bytes(job: RollplexJob, server: Server) -> None:
    again = RollplexJob.model_validate_json(job.model_dump_json(by_alias=True), by_alias=True, by_name=False)
    assert json.dumps(all_of(job, server)) == json.dumps(all_of(again, server))


def test_longest_name_and_last_index_fit() -> None:
    assert len(children.pod_name("j" * 50, 4095)) <= 63


def contents(job: RollplexJob, attempt: int = 1) -> dict[str, str]:
    made = children.others(view_of(job), job, children.resolve(job, EVERYTHING), attempt, SETTINGS)
    return {each["kind"]: each["metadata"]["annotations"]["rollplex.io/content"] for each in made}


def test_content_changes_with_what_is_written_and_only_then() -> None:
    before, edited = contents(make_job()), contents(make_job(training={"steps": 11, "promptsPerStep": 256}))
    assert before == contents(make_job())
    assert {kind for kind in before if before[kind] != edited[kind]} == {"ConfigMap"}
    later = contents(make_job(), attempt=2)
    assert all(before[kind] != later[kind] for kind in before)  # the attempt is a label of each


def test_others_of_a_job() -> None:
    job = gpu_job(runPolicy={"disruptionBudget": True})
    made = {each["kind"]: each for each in all_of(job) if each["kind"] != "Pod"}
    assert set(made) == {"ConfigMap", "Service", "PodDisruptionBudget", "PodGroup", "ResourceClaimTemplate"}
    assert made["ConfigMap"]["data"] == {"job.yaml": resolved_yaml(job)}
    assert job_from(yaml.safe_load(made["ConfigMap"]["data"]["job.yaml"]), context="cluster") == job
    assert made["Service"]["spec"]["clusterIP"] == "None"
    assert made["Service"]["spec"]["publishNotReadyAddresses"] is True
    assert made["PodDisruptionBudget"]["spec"]["minAvailable"] == 2
    selector = made["Service"]["spec"]["selector"]
    assert selector == made["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]
    for pod in (each for each in all_of(job) if each["kind"] == "Pod"):
        assert selector.items() <= pod["metadata"]["labels"].items()
    assert {each["kind"] for each in all_of(make_job(), Server())} == {"ConfigMap", "Service", "Pod"}


def test_only_the_pods_that_are_asked_for() -> None:
    job = make_job(nodes=4)
    pods = children.pods(view_of(job), job, children.resolve(job, Server()), 1, [3, 1], SETTINGS)
    assert [pod["metadata"]["name"] for pod in pods] == ["job-3", "job-1"]


def test_no_image_and_no_default_is_refused() -> None:
    job, none = make_job(), Settings()
    assert [fault.path for fault in children.faults(job, Server(), none)] == ["spec.image"]
    with pytest.raises(JobError, match=r"spec\.image"):
        children.pods(view_of(job), job, children.resolve(job, Server()), 1, [0], none)


def test_a_template_that_changes_what_a_pod_is_makes_no_pod() -> None:
    job = make_job(podTemplate={"spec": {"hostname": "x"}})
    with pytest.raises(JobError, match=r"spec\.podTemplate\.spec\.hostname"):
        children.pods(view_of(job), job, children.resolve(job, Server()), 1, [0], SETTINGS)


def test_faults_of_every_kind_are_told_at_once() -> None:
    job = make_job(
        hardware={"profile": "cpu", "ranksPerNode": 2, "gpuResource": "x/y"},
        numa={"gpuAllocation": "dra"},
        scheduling={"queue": "q"},
        podTemplate={"spec": {"subdomain": "x"}},
    )
    assert [fault.path for fault in children.faults(job, Server(), Settings())] == [
        "spec.hardware.gpuResource",
        "spec.numa.gpuAllocation",
        "spec.scheduling.queue",
        "spec.image",
        "spec.podTemplate.spec.subdomain",
    ]
