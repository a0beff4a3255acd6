"""Jobs for tests, as small as a user could write them."""

from __future__ import annotations

from typing import Any

from tests.cluster.client import Object

TARGET = 10  # steps of every job here
CLAIM = "data"  # where all their files are
NODE_LABEL = "rollplex-tests/nodes"


def make_job(name: str = "job", nodes: int = 2, **spec: Any) -> Object:
    """A job of one CPU rank a node; ``spec`` is merged into it, section by section."""
    body: Object = {
        "apiVersion": "rollplex.io/v1alpha1",
        "kind": "RollplexJob",
        "metadata": {"name": name},
        "spec": {
            "model": {"path": "/data/model", "shape": "qwen2.5-vl-tiny"},
            "data": {"train": "/data/train.jsonl"},
            "reward": [{"name": "exact"}],
            "training": {"steps": TARGET, "promptsPerStep": nodes},
            "checkpoint": {"path": "/data/checkpoints"},
            "image": "rollplex/trainer:test",
            "nodes": nodes,
            "hardware": {"profile": "cpu", "ranksPerNode": 1, "cpusPerRank": 1, "memoryPerRank": "1Gi"},
            "volumes": [{"claim": CLAIM, "path": "/data"}],
            "runPolicy": {"terminationGraceSeconds": 30},
        },
    }
    merge(body["spec"], spec)
    return body


def on_nodes(prefix: str) -> dict[str, Any]:
    """A pod template that chooses the nodes of a prefix, which take no other pods."""
    tolerations = [{"key": NODE_LABEL, "operator": "Exists"}]
    return {"spec": {"nodeSelector": {NODE_LABEL: prefix}, "tolerations": tolerations}}


def merge(into: dict[str, Any], what: dict[str, Any]) -> None:
    """Mappings key by key, everything else whole."""
    for key, value in what.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        else:
            into[key] = value


def condition(job: Object, kind: str) -> dict[str, Any]:
    """A condition of a job, or {} where it has none of that type."""
    conditions = job.get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == kind), {})


def is_true(kind: str) -> Any:
    """For Client.wait: the job has this condition."""
    return lambda job: condition(job, kind).get("status") == "True"


def in_phase(*phases: str) -> Any:
    """For Client.wait: the job is in one of these phases."""
    return lambda job: job.get("status", {}).get("phase") in phases


def has_reason(kind: str, reason: str) -> Any:
    """For Client.wait: a condition has this reason."""
    return lambda job: condition(job, kind).get("reason") == reason
