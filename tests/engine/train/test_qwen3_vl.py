"""A Qwen3-VL from the command line to other people's programs: trained on images and videos, exported, read again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from transformers import AutoModelForImageTextToText, AutoProcessor

from rollplex.data import tiny_model
from rollplex.policy.policy import load_policy
from rollplex.positions import positions_of_inputs
from rollplex.rollout.replay import read_rollouts
from tests.engine.policy.passes import group_of, score
from tests.engine.policy.test_export import prompt_of
from tests.engine.train.conftest import Run, command, read_run
from tests.engine.train.test_export import VIDEO, assert_vllm_answers_as_the_policy
from tests.foreign_sets import verl_parquet

STEPS = 2


@pytest.fixture(scope="module")
def trained3(workplace: Path, document: Callable[..., dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two live steps; every second question is about an image, the others about a video."""
    place = tmp_path_factory.mktemp("qwen3")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny_model, "WARM_UP_STEPS", 20)
        tiny_model.make(place / "model", 3, ("colour", "direction"), "qwen3-vl")
    job = document(
        model={"path": str(place / "model")},
        data={"train": str(verl_parquet(place, workplace / "data", 8)), "maxPromptTokens": 256, "format": "verl"},
        training={
            "promptsPerStep": 4,
            "steps": STEPS,
            "seed": 5,
            "optimizer": {"learningRate": 1e-3, "warmupSteps": 0},
        },
        evaluation=None,
    )
    (place / "job.yaml").write_text(yaml.safe_dump(job))
    done = command("train", "job.yaml", "--name", "three", cwd=place)
    assert done.returncode == 0, done.stderr[-2000:]
    run = read_run(place / "runs/three", done.stdout)
    run.errors = done.stderr
    done = command("export", "three", "--out", str(place / "out"), cwd=place)
    assert done.returncode == 0, done.stderr[-2000:]
    return run


def exported(run: Run) -> Path:
    return run.folder.parent.parent / "out"


def test_it_trains_on_images_and_videos_with_the_engines_log_probabilities(trained3: Run) -> None:
    assert trained3.errors == ""
    assert [row["step"] for row in trained3.rows] == [1, 2]
    for row in trained3.rows:
        assert row["data/skipped"] == row["update/skipped"] == 0
        assert row["grad/norm"] > 0
        assert 0 < row["parity/max"] <= 1e-4
    shape = load_policy(exported(trained3)).shape
    prompts = [sample.prompt_token_ids for file in trained3.rollouts.iterdir() for sample in read_rollouts(file)]
    assert any(shape.image_token in ids for ids in prompts)
    # two temporal rows, each between markers of its own and within the template's
    assert any(shape.video_token in ids and ids.count(shape.vision_start_token) == 3 for ids in prompts)


def test_transformers_reads_the_export_and_gives_the_policys_logits(trained3: Run) -> None:
    folder = exported(trained3)
    policy = load_policy(folder)
    before = load_policy(folder.parent / "model")
    changed = [not torch.equal(a, b) for a, b in zip(policy.parameters(), before.parameters(), strict=True)]
    assert all(changed), "every parameter was trained"
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
    processor = AutoProcessor.from_pretrained(folder)
    frames = np.random.default_rng(1).integers(0, 255, (5, 3, 96, 64), dtype=np.uint8)
    about = [{"fps": 2.0, "total_num_frames": 5, "frames_indices": list(range(5))}]
    inputs = processor(text=[VIDEO], videos=[frames], video_metadata=about, return_tensors="pt")
    prompt = prompt_of(inputs, folder)
    assert len(prompt.media_starts[0]) == 3
    positions = positions_of_inputs(inputs, policy.shape)
    with torch.no_grad():
        logp = model(**inputs, position_ids=positions).logits[0, -1].log_softmax(-1)
    some = range(0, policy.shape.vocabulary, 7)
    scored = score(policy, group_of(0, prompt, *([token] for token in some)))
    for sample, token in enumerate(some):
        assert abs(float(scored[0, sample][0]) - float(logp[token])) <= 1e-5


def test_vllm_answers_from_the_export_as_the_policy_does(trained3: Run) -> None:
    assert_vllm_answers_as_the_policy(exported(trained3).parent)
