"""Jobs and servers for the tests of what a job becomes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rollplex.api import RollplexJob, job_from
from rollplex_operator.observation import JobView, Server, Settings

UID = "0f3a1c9e-1111-4222-8333-444455556666"
SETTINGS = Settings(default_image="registry.example/trainer:1", image_pull_secrets=("pull",))
EVERYTHING = Server(
    restart_all_containers=True,
    native_gang=True,
    kueue=True,
    coscheduling=True,
    volcano=True,
    device_classes=frozenset({"gpu.nvidia.com"}),
)


def document(name: str = "job", **spec: Any) -> dict[str, Any]:
    """A job of two nodes of the cpu profile; a section that is given takes the whole place of the one here."""
    return {
        "apiVersion": "rollplex.io/v1alpha1",
        "kind": "RollplexJob",
        "metadata": {"name": name, "namespace": "research"},
        "spec": {
            "model": {"path": "/data/model"},
            "data": {"train": "/data/train.jsonl"},
            "reward": [{"name": "exact"}],
            "training": {"steps": 10, "promptsPerStep": 256},
            "checkpoint": {"path": "/data/checkpoints"},
            "nodes": 2,
            "hardware": {"profile": "cpu", "ranksPerNode": 2},
            "volumes": [{"claim": "data", "path": "/data"}],
            **spec,
        },
    }


def make_job(name: str = "job", **spec: Any) -> RollplexJob:
    """The same, read and checked as the operator does."""
    return job_from(document(name, **spec), context="cluster")


def view_of(job: RollplexJob, uid: str = UID) -> JobView:
    """The job as the server would have it."""
    shown: Mapping[str, Any] = job.model_dump(mode="json", by_alias=True)
    return JobView(uid, job.metadata.namespace, job.metadata.name, 1, "1", 0.0, False, shown, {})


def gpu_job(**spec: Any) -> RollplexJob:
    """A job of h100 nodes."""
    return make_job(**{"hardware": {"profile": "h100"}, **spec})
