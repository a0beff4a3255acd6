"""The table of bad jobs as `rollplex validate` sees it, and how rules and faults go together."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from rollplex.api import JobError, job_from, load_job
from rollplex.api.document import with_overrides
from rollplex.api.load import Context
from tests.cluster.bad_job import ON_CLUSTER, SMALLEST, Bad
from tests.cluster.bad_jobs import TABLE, page, validated

PAGE = Path(__file__).parents[3] / "docs" / "bad-jobs.md"


def faults_of(*overrides: str, context: Context = "job", ranks: int | None = None) -> list[tuple[str, str]]:
    try:
        job_from(with_overrides(SMALLEST, overrides), context=context, ranks=ranks)
    except JobError as error:
        return [(fault.path, fault.message) for fault in error.faults]
    return []


@pytest.mark.parametrize("job", TABLE, ids=lambda job: job.id)
def test_bad_job_is_one_fault(job: Bad) -> None:
    [(at, message)] = validated(job)
    assert at == f"spec.{job.path}"
    assert job.says in message


def test_page_of_bad_jobs_has_not_drifted() -> None:
    assert PAGE.read_text() == page(), "run: make docs"


def test_smallest_job_has_no_fault_anywhere() -> None:
    assert faults_of() == faults_of(context="train") == faults_of(*ON_CLUSTER, context="cluster") == []


def test_all_faults_come_at_once() -> None:
    faults = faults_of(
        "training.steps=",
        "model.pth=/m",
        "algorithm.groupSize=1",
        "rollout.topK=5",
        "schedule.sharePrefix=false",
        "memory.budget=1Gi",
        "reward.0.weight=heavy",
        context="train",
    )
    assert sorted(path for path, _ in faults) == [
        "spec.algorithm.groupSize",
        "spec.memory.budget",
        "spec.model.pth",
        "spec.reward.0.weight",
        "spec.rollout.topK",
        "spec.schedule.sharePrefix",
        "spec.training.steps",
    ]


@pytest.mark.parametrize(
    "wrong", ["training.promptsPerStep=twelve", "training.promtsPerStep=12", "parallelism.train.tensor=two"]
)
def test_rule_is_silent_about_a_field_that_is_wrong_itself(wrong: str) -> None:
    # the default 128 is not divisible by 7, but nobody wrote 128 (or 1)
    assert len(faults_of(wrong, ranks=7)) == 1


def test_rules_do_not_depend_on_ranks_that_are_not_known() -> None:
    assert faults_of("training.promptsPerStep=7") == []
    assert len(faults_of(*ON_CLUSTER, "nodes=none", "training.promptsPerStep=7", context="cluster")) == 1


def test_devicePlugin_is_right_where_groups_fit_a_container() -> None:  # noqa: N802
    numa = "numa={pinning: container, gpuAllocation: devicePlugin}"
    assert faults_of(*ON_CLUSTER, numa, "parallelism.train.tensor=4", "hardware.numaNodes=2", context="cluster") == []
    # one NUMA node more than its profile says: containers of 2 GPUs
    [(path, _)] = faults_of(*ON_CLUSTER, numa, "parallelism.train.tensor=4", "hardware.numaNodes=4", context="cluster")
    assert path == "spec.numa.gpuAllocation"
    # more NUMA nodes than ranks: a container for each rank
    assert faults_of(*ON_CLUSTER, numa, "hardware={numaNodes: 4, ranksPerNode: 2}", context="cluster") == []


def test_pod_template_mounts_cover_paths_too() -> None:
    mounts = "[{name: m, mountPath: /models}, {name: d, mountPath: /data}, {name: c, mountPath: /c, readOnly: false}]"
    template = f"podTemplate={{spec: {{containers: [{{name: trainer, volumeMounts: {mounts}}}]}}}}"
    assert faults_of(template, "checkpoint.path=/c/run", context="cluster") == []
    other = template.replace("trainer", "sidecar")
    assert [path for path, _ in faults_of(other, "checkpoint.path=/c/run", context="cluster")] == [
        "spec.model.path",
        "spec.data.train",
        "spec.checkpoint.path",
    ]


@pytest.mark.parametrize(
    ("change", "faults"),
    [
        ({"kind": "Pod"}, ['kind: "Pod" is not RollplexJob']),
        ({"apiVersion": "rollplex.io/v1"}, ['apiVersion: "rollplex.io/v1" is not rollplex.io/v1alpha1']),
        ({"kind": None}, ["kind: null is not RollplexJob"]),
        ({"metadata": {"name": "Has Spaces"}}, ['metadata.name: "Has Spaces" is malformed; write up to 50 lower-case']),
        ({"metadata": {}}, ["metadata.name: is missing; for example name: clevrer"]),
        ({"spec": None}, ["spec: is missing"]),
        ({"spec": []}, ["spec: a list is not a mapping"]),
        ({"Spec": {}}, ["Spec: unknown key; did you mean spec?"]),
        ({"status": {}}, ["status: unknown key"]),
    ],
)
def test_bad_top_level_is_named(change: dict[str, Any], faults: list[str], tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(SMALLEST | change))
    with pytest.raises(JobError) as caught:
        load_job(path)
    found = [str(fault) for fault in caught.value.faults]
    assert len(found) == len(faults)
    for fault, beginning in zip(found, faults, strict=True):
        assert fault.startswith(beginning)


def test_missing_kind_says_what_to_write() -> None:
    with pytest.raises(
        JobError, match=r"^apiVersion: is missing; write apiVersion: rollplex.io/v1alpha1\nkind: is missing"
    ):
        job_from({"spec": {}})
