"""What later versions fill is refused for training, and only there."""

from pathlib import Path

import pytest

from rollplex.api import JobError, RollplexJob, job_from
from rollplex.api.document import with_overrides
from rollplex.api.fields import every_path
from rollplex.api.load import load_job
from rollplex.api.not_yet import NOT_YET

WHOLE = Path(__file__).parent / "data" / "clevrer-32b.yaml"
SMALLEST = {
    "apiVersion": "rollplex.io/v1alpha1",
    "kind": "RollplexJob",
    "metadata": {"name": "small"},
    "spec": {
        "model": {"path": "m"},
        "data": {"train": "t.jsonl"},
        "reward": [{"name": "exact"}, {"python": "r.py:f"}],
        "training": {"steps": 3},
    },
}

# One use of every line of the table: a line that is deleted there is deleted here.
USES = {
    "spec.rollout.prefixFrom": "actor",
    "spec.schedule.decodeSMs": "32",
    "spec.parallelism.train.tensor": "2",
    "spec.parallelism.rollout.tensor": "2",
    "spec.parallelism.placement": "disaggregated",
    "spec.memory.budget": "76Gi",
    "spec.memory.activations": "offload",
    "spec.numa.pinning": "process",
}


def test_table_and_uses_are_about_the_same_fields() -> None:
    assert set(USES) == set(NOT_YET)
    assert set(NOT_YET) <= {path for path, _ in every_path(RollplexJob)}


@pytest.mark.parametrize(("path", "value"), USES.items())
def test_part_of_a_later_version_is_refused_by_train_only(path: str, value: str) -> None:
    overrides = [f"{path}={value}"]
    if path == "spec.parallelism.placement":
        overrides.append("parallelism.rollout.ranks=1")
    document = with_overrides(SMALLEST, overrides)
    job_from(document)
    with pytest.raises(JobError) as caught:
        job_from(document, context="train", ranks=1)
    faults = {fault.path: fault.message for fault in caught.value.faults}
    assert "not yet; " in faults[path]
    if not path.startswith("spec.parallelism"):
        assert len(faults) == 1


def test_messages_say_what_to_do_instead() -> None:
    document = with_overrides(SMALLEST, ["memory={budget: 1Gi, activations: offload}"])
    with pytest.raises(JobError) as caught:
        job_from(document, context="train", ranks=2)
    assert [str(fault) for fault in caught.value.faults] == [
        "spec.memory.budget: not yet; leave it out",
        'spec.memory.activations: "offload": not yet; use auto or keep or recompute',
        "--ranks: 2: not yet; use 1",
    ]


@pytest.mark.parametrize("value", ["k1", "k2", "k3"])
def test_what_works_today_is_not_refused(value: str) -> None:
    overrides = [
        f"algorithm.kl.estimator={value}",
        "memory={activations: recompute, optimizer: hbm}",
        "evaluation={data: v.jsonl, everySteps: 5, samples: 2, blankFrames: true}",
        "reward.0={name: iou, options: {kind: box}}",
        "tracking.wandb={project: p, mode: offline}",
        "precision=bf16",
        "schedule={mode: serial, sharePrefix: false, runAhead: 4, deterministic: true}",
        "data={train: t.parquet, format: verl, groupByMedia: true, cache: {path: c, maxBytes: 1Gi}}",
        "data={train: t.parquet, format: verl, groupByMedia: true, cache: {path: c, maxBytes: 1Gi}}",
        "data={train: t.parquet, format: verl, groupByMedia: true, cache: {path: c, maxBytes: 1Gi}}",
        "model={path: m, reference: other, freeze: [vision]}",
        "checkpoint={path: c, everySteps: 5, keepLast: 1, keepBest: 0}",
    ]
    job_from(with_overrides(SMALLEST, overrides), context="train", ranks=1)


def test_whole_job_is_refused_for_its_later_parts_only() -> None:
    with pytest.raises(JobError) as caught:
        load_job(WHOLE, context="train", ranks=1)
    assert [fault.path for fault in caught.value.faults] == [
        "spec.parallelism.train.tensor",
        "spec.parallelism.rollout.tensor",
        "spec.memory.budget",
    ]
