"""Which field of the job a fault of what it points at is put down to."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollplex import setup
from rollplex.api.errors import JobError
from rollplex.api.job import JobSpec
from rollplex.memory.gradients import Gradients
from rollplex.step.runner import Models
from tests.engine.tiny import make_folder, random_policy, tiny_shape


def spec(model: Path, reference: str = "initial", **more: object) -> JobSpec:
    return JobSpec.model_validate(
        {
            "data": {"train": "t.jsonl"},
            "reward": [{"name": "exact"}],
            "training": {"steps": 3},
            "model": {"path": str(model), "reference": reference},
            **more,
        }
    )


def test_a_reference_that_is_missing_is_the_references_fault(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model", tiny_shape())
    given = spec(folder, reference=str(tmp_path / "teacher"))
    with pytest.raises(JobError) as caught:
        setup.build_models(given)
    [fault] = caught.value.faults
    assert fault.path == "spec.model.reference"
    said = f"{tmp_path / 'teacher/config.json'} is missing; model.reference must be a Hugging Face folder with it"
    assert fault.message == said


def test_a_model_without_weights_is_the_models_fault(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model", tiny_shape())
    with pytest.raises(JobError, match=r"^spec\.model\.path: .*/\*\.safetensors is missing; model\.path must be"):
        setup.build_models(spec(folder))


def test_a_replay_that_is_missing_is_named_once(tmp_path: Path) -> None:
    policy = random_policy(tiny_shape(), seed=1)
    models = Models(policy, Gradients(policy.named_parameters()), None, None)  # type: ignore[arg-type]
    with pytest.raises(JobError) as caught:
        setup.build_rollout(spec(tmp_path, rollout={"replay": str(tmp_path / "none")}), models)
    assert str(caught.value).startswith(f"spec.rollout.replay: {tmp_path / 'none'} is neither a rollouts file nor")
