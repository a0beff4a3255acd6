"""What of a job may change, and when: the rules of its definition, without an operator."""

from __future__ import annotations

from typing import Any

import pytest

from rollplex.api.cluster import MUTABLE
from rollplex.api.document import with_overrides
from rollplex.api.fields import children
from rollplex.api.job import JobSpec
from tests.cluster.bad_job import ON_CLUSTER, SMALLEST
from tests.cluster.client import Client, RefusedError

WAY_OUT = "cannot be changed while the job may have pods; set runPolicy.suspend to true first"
TEMPLATE = {
    "metadata": {"labels": {"a": "1"}},
    "spec": {
        "nodeSelector": {"zone": "a"},
        "containers": [{"name": "trainer", "env": [{"name": "A", "value": "1"}], "unknown": 1}],
    },
}
# one change to each part of a spec: (patch, the field that the refusal names)
EDITS: list[tuple[dict[str, Any], str]] = [
    ({"model": {"path": "/models/n"}}, "model.path"),
    ({"data": {"maxPromptTokens": 5}}, "data.maxPromptTokens"),
    ({"data": {"video": {"fps": 3.5}}}, "data.video.fps"),
    ({"reward": [{"name": "exact"}, {"name": "choice"}]}, "reward"),
    ({"algorithm": {"kl": {"coefficient": 0.5}}}, "algorithm.kl.coefficient"),
    ({"rollout": {"stop": ["x"]}}, "rollout.stop"),
    ({"training": {"seed": 4}}, "training.seed"),
    ({"training": {"optimizer": {"betas": [0.8, 0.9]}}}, "training.optimizer.betas"),
    ({"schedule": {"runAhead": 3}}, "schedule.runAhead"),
    ({"parallelism": {"train": {"tensor": 2}}}, "parallelism.train.tensor"),
    ({"precision": "fp32"}, "precision"),
    ({"memory": {"budget": "3Gi"}}, "memory.budget"),
    ({"checkpoint": {"everySteps": 2}}, "checkpoint.everySteps"),
    ({"evaluation": {"data": "/data/v"}}, "evaluation"),
    ({"tracking": {"wandb": {"project": "p"}}}, "tracking.wandb"),
    ({"image": "other"}, "image"),
    ({"nodes": 2}, "nodes"),
    ({"hardware": {"numaNodes": 2}}, "hardware.numaNodes"),
    ({"numa": {"pinning": "none"}}, "numa.pinning"),
    ({"volumes": [{"claim": "all", "path": path} for path in ("/models", "/data", "/checkpoints")]}, "volumes"),
    ({"envFrom": [{"secretRef": {"name": "s"}}]}, "envFrom"),
    ({"runPolicy": {"restart": "newPods"}}, "runPolicy.restart"),
    ({"scheduling": {"priorityClassName": "high"}}, "scheduling.priorityClassName"),
    ({"podTemplate": {"metadata": {"labels": {"a": "2"}}}}, "podTemplate"),
]
FREE: dict[str, Any] = {
    "maxRestarts": 7,
    "startDeadlineSeconds": 60,
    "activeDeadlineSeconds": 70,
    "terminationGraceSeconds": 80,
    "ttlSecondsAfterFinished": 90,
    "cleanPods": "all",
    "disruptionBudget": True,
    "suspend": True,
}
# changes that leave the number of keys, or the values, as they were
TEMPLATES: list[dict[str, Any]] = [
    {"spec": {"nodeSelector": {"zone": None, "area": "a"}}},
    {"spec": {"nodeSelector": None, "tolerations": [{"key": "k"}]}},
    {"spec": {"containers": [{"name": "trainer", "env": [{"name": "A", "value": "2"}], "unknown": 1}]}},
    {"spec": {"containers": [{"name": "trainer", "env": [{"name": "A", "value": "1"}], "unknown": 2}]}},
    {"spec": {"containers": [{"name": "trainer", "image": "x", "unknown": 1}]}},
    {"spec": {"containers": [{"name": "sidecar", "env": [{"name": "A", "value": "1"}], "unknown": 1}]}},
    {"metadata": None},
    {"metadata": {"labels": None, "annotations": {"a": "1"}}},
]


@pytest.fixture
def job(client: Client) -> Client:
    """A running job ``small``, as far as its spec says."""
    document = with_overrides(SMALLEST, ON_CLUSTER)
    document["spec"]["podTemplate"] = TEMPLATE
    client.create("rollplexjobs", document)
    return client


def edit(client: Client, **spec: Any) -> Any:
    return client.patch("rollplexjobs", "small", {"spec": spec})


def suspend(client: Client) -> None:
    edit(client, runPolicy={"suspend": True})


def test_every_part_of_a_spec_is_edited_here() -> None:
    assert {next(iter(patch)) for patch, _ in EDITS} == set(children(JobSpec))
    assert set(FREE) == set(MUTABLE)


def test_running_job_cannot_be_edited(job: Client) -> None:
    for patch, field in EDITS:
        with pytest.raises(RefusedError) as refused:
            edit(job, **patch)
        assert f"spec.{field.partition('.')[0]}" in refused.value.message
        assert f"{field} {WAY_OUT}" in refused.value.message


def test_running_job_may_change_how_it_is_run(job: Client) -> None:
    for key, value in FREE.items():
        assert edit(job, runPolicy={key: value})["spec"]["runPolicy"][key] == value


def test_refusal_names_every_field_that_changed(job: Client) -> None:
    with pytest.raises(RefusedError, match=rf"Invalid value: training.steps, training.optimizer.betas {WAY_OUT}"):
        edit(job, training={"steps": 4, "optimizer": {"betas": [0.1, 0.2]}})


def test_suspended_job_can_be_edited(job: Client) -> None:
    suspend(job)
    for patch, _ in EDITS:
        before = job.get("rollplexjobs", "small")["metadata"]["generation"]
        assert edit(job, **patch)["metadata"]["generation"] == before + 1


def test_case_26_resuming_and_editing_go_together(job: Client) -> None:
    other = {"spec": {"nodeSelector": {"zone": "b"}}}
    with pytest.raises(RefusedError, match=WAY_OUT):
        edit(job, podTemplate=other)
    with pytest.raises(RefusedError, match=WAY_OUT):
        edit(job, podTemplate=other, runPolicy={"suspend": True})
    suspend(job)
    changed = edit(job, podTemplate=other, runPolicy={"suspend": False})
    assert changed["spec"]["podTemplate"]["spec"]["nodeSelector"] == {"zone": "b"}
    with pytest.raises(RefusedError, match=WAY_OUT):
        edit(job, podTemplate={"spec": {"nodeSelector": {"zone": "c"}}})


@pytest.mark.parametrize("template", TEMPLATES, ids=str)
def test_no_part_of_a_template_escapes(job: Client, template: dict[str, Any]) -> None:
    with pytest.raises(RefusedError, match=f"podTemplate {WAY_OUT}"):
        edit(job, podTemplate=template)


def test_invalid_job_can_be_mended(job: Client) -> None:
    admitted = {
        "type": "Admitted",
        "status": "False",
        "reason": "InvalidSpec",
        "message": "",
        "lastTransitionTime": "2026-12-01T00:00:00Z",
    }
    job.patch("rollplexjobs", "small", {"status": {"conditions": [admitted]}}, part="status")
    edit(job, model={"path": "/models/n"}, podTemplate={"spec": None})
    queued = {**admitted, "reason": "Queued"}
    job.patch("rollplexjobs", "small", {"status": {"conditions": [queued]}}, part="status")
    with pytest.raises(RefusedError, match=WAY_OUT):
        edit(job, model={"path": "/models/m"})


def test_edit_of_a_suspended_job_must_be_right(job: Client) -> None:
    suspend(job)
    with pytest.raises(RefusedError, match="data-parallel size 24"):
        edit(job, nodes=3)
