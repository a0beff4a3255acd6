"""Algorithms from a job to its metrics: a live run's rollouts, fed back without an engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rollplex.api.load import load_job
from rollplex.show.page import show
from rollplex.train import train
from tests.engine.train.conftest import Run, read_run

OWN: dict[str, dict[str, Any]] = {  # what the resolved job says where the job was silent
    "gspo": {"normalization": "sequence", "clip": {"low": 3e-4, "high": 4e-4}},
    "dapo": {"normalization": "token", "clip": {"low": 0.2, "high": 0.28}, "overlong": {"buffer": 1, "penalty": 1.0}},
    "reinforce_plus_plus": {"normalization": "sequence", "clip": {"low": 0.2, "high": 0.2}},
    "opd": {"normalization": "token"},
}


@pytest.mark.parametrize("name", OWN)
def test_a_job_trains_by_its_algorithm(
    name: str,
    trained: Run,
    workplace: Path,
    document: Callable[..., dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two steps: the first is on-policy, in the second the engine's log probabilities are of other weights."""
    monkeypatch.chdir(tmp_path)
    algorithm: dict[str, Any] = {"name": name, "groupSize": 4, "ratio": "rollout"}
    job = document(evaluation=None, algorithm=algorithm)
    if name == "opd":
        job["spec"]["model"]["reference"] = str(workplace / "model")  # a teacher that the student begins as
    Path("job.yaml").write_text(yaml.safe_dump(job))
    overrides = [f"rollout.replay={trained.rollouts}", "rollout.parityEverySteps=50", "training.steps=2"]
    train(load_job(Path("job.yaml"), overrides, context="train", ranks=1), "run")
    run = read_run(Path("runs/run"), "")
    first, second = run.rows
    assert first["reward/mean"] == trained.rows[0]["reward/mean"]
    assert first["ratio/mean"] == pytest.approx(1.0, abs=1e-4)
    assert second["ratio/max"] > second["ratio/mean"]
    assert first["groups/filtered"] == (first["reward/zero_variance_groups"] if name == "dapo" else 0)
    with_kl = name in ("reinforce_plus_plus", "opd")
    assert ("kl/mean" in first) == with_kl
    if name == "opd":  # the teacher has nothing to say yet
        assert first["loss"] == pytest.approx(0.0, abs=1e-5)
        assert first["groups/skipped"] == 0
    else:
        assert first["grad/norm"] > 0
    resolved = yaml.safe_load((run.folder / "job.yaml").read_text())["spec"]["algorithm"]
    assert resolved.items() >= OWN[name].items()


def test_opd_trains_without_a_reward(
    trained: Run,
    workplace: Path,
    document: Callable[..., dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    job = document(evaluation=None, algorithm={"name": "opd", "groupSize": 4})
    job["spec"]["model"]["reference"] = str(workplace / "model")
    del job["spec"]["reward"]
    Path("job.yaml").write_text(yaml.safe_dump(job))
    overrides = [f"rollout.replay={trained.rollouts}", "training.steps=1"]
    train(load_job(Path("job.yaml"), overrides, context="train", ranks=1), "run")
    [row] = read_run(Path("runs/run"), "").rows
    assert row["kl/mean"] == pytest.approx(0.0, abs=1e-5)
    assert [name for name in row if name.startswith("reward/")] == []
    [file] = Path("runs/run/rollouts").glob("*.jsonl")
    assert {json.loads(line)["reward"] for line in file.read_text().splitlines()} == {None}
    assert show(Path("runs/run")).exists()
