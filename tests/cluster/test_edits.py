"""Every field of the spec, edited while the job runs: situation 15."""

from __future__ import annotations

from typing import Any

import pytest

from rollplex.api.job import JobSpec
from rollplex.api.load import job_from
from tests.cluster.client import RefusedError
from tests.cluster.jobs import make_job, merge
from tests.cluster.situation import Situation

MUTABLE: dict[str, Any] = {
    "maxRestarts": 7,
    "startDeadlineSeconds": 900,
    "activeDeadlineSeconds": 9000,
    "ttlSecondsAfterFinished": 6000,  # later than any session: it is written to no more
    "cleanPods": "all",
}
# one edit of each section; each is a valid job by itself
EDITS: dict[str, Any] = {
    "model": {"path": "/data/other"},
    "data": {"train": "/data/other.jsonl"},
    "reward": [{"name": "exact", "weight": 2.0}],
    "algorithm": {"groupSize": 4},
    "rollout": {"maxTokens": 128},
    "training": {"seed": 7},
    "schedule": {"mode": "serial"},
    "parallelism": {"placement": "colocated", "rollout": {"tensor": 2}},
    "precision": "bf16",
    "memory": {"optimizer": "host"},
    "checkpoint": {"everySteps": 3},
    "evaluation": {"data": "/data/val.jsonl"},
    "tracking": {"tensorboard": False},
    "image": "rollplex/trainer:other",
    "nodes": 4,
    "hardware": {"cpusPerRank": 3},
    "numa": {"pinning": "none"},
    "volumes": [{"claim": "data", "path": "/data"}, {"claim": "data", "path": "/more"}],
    "envFrom": [{"secretRef": {"name": "wandb"}}],
    "scheduling": {"priorityClassName": "batch"},
    "podTemplate": {"metadata": {"labels": {"a": "b"}}},
}


def test_case_15_every_section_is_edited_here() -> None:
    fields = {field.alias or name for name, field in JobSpec.model_fields.items()}
    assert fields == {*EDITS, "runPolicy"}


@pytest.fixture(scope="module")
def ranks() -> dict[str, Any]:
    """Two ranks a node, so that every edit leaves a valid job."""
    return {"hardware": {"ranksPerNode": 2}, "training": {"promptsPerStep": 8}}


def test_case_15_immutable_fields_are_refused_while_running(situation: Situation, ranks: dict[str, Any]) -> None:
    situation.start(**ranks)
    pods = situation.pods()
    for section, edit in EDITS.items():
        edited = make_job(**ranks)
        merge(edited["spec"], {section: edit})
        job_from(edited, context="cluster")  # by itself it is a good job
        with pytest.raises(RefusedError, match=rf"spec.{section}.*(immutable|suspend)") as refused:
            situation.edit(**{section: edit})
        assert refused.value.code == 422, section
        assert "runPolicy.suspend" in refused.value.message, "the way out is named"
    assert situation.pods() == pods


def test_case_15_all_fields_are_mutable_while_suspended(situation: Situation, ranks: dict[str, Any]) -> None:
    situation.create(**ranks, runPolicy={"suspend": True})
    situation.wait("job", "Suspended")
    for section, edit in EDITS.items():
        situation.edit(**{section: edit})
    situation.edit(runPolicy={"suspend": False}, scheduling={"priorityClassName": None})
    situation.wait("job", "Running")
    pods = situation.pods()
    assert len(pods) == 4
    assert pods[0]["metadata"]["labels"]["a"] == "b"
    assert pods[0]["spec"]["containers"][0]["image"] == "rollplex/trainer:other"


def test_case_15_mutable_fields_act(situation: Situation) -> None:
    situation.start()
    for field, value in MUTABLE.items():
        situation.edit(runPolicy={field: value})
    situation.wait_for(
        "the budget is made",
        lambda: (
            situation.edit(runPolicy={"disruptionBudget": True})
            and situation.client.find("poddisruptionbudgets", "job")
        ),
    )
    situation.edit(runPolicy={"disruptionBudget": False})
    situation.wait_for("the budget is gone", lambda: situation.client.find("poddisruptionbudgets", "job") is None)
    situation.edit(runPolicy={"maxRestarts": 0})
    situation.fail()
    situation.wait("job", "Failed")
    situation.wait_for("cleanPods: all", lambda: not situation.pods())
    assert situation.made() == 2


def test_case_15_a_deadline_that_is_edited_counts_from_the_start(situation: Situation) -> None:
    situation.start()
    situation.edit(runPolicy={"activeDeadlineSeconds": 1})
    situation.wait("job", "Failed", timeout=10)
    assert situation.condition("Failed")["reason"] == "ActiveDeadlineExceeded"
