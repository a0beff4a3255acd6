"""A run folder as ``rollplex train`` leaves it, over real media, with texts that try to break out of a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from rollplex.api.data import DataSpec
from rollplex.api.load import job_from, resolved_yaml
from rollplex.api.shapes import SHAPES, config_of_shape
from rollplex.batch import Prompt, Response
from rollplex.data.columns import columns_of
from rollplex.data.dataset import read_rows
from rollplex.data.reader import Reader
from rollplex.data.shapes import render
from rollplex.data.tiny_model import save_processor, with_tokens
from rollplex.environment import prepare
from rollplex.rollout.replay import Judged, save_rollouts
from tests.unit.show.texts import HOSTILE, TEXTS

prepare()

STEPS = (4, 5)


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``runs/film`` with steps 4 and 5 of three prompts x 4: a video, a picture with hostile text, text alone."""
    place = tmp_path_factory.mktemp("show")
    _write_model(place / "model")
    render(place / "data", 10, ["colour"], seed=2)
    pixels = np.zeros((56, 112, 3), dtype=np.uint8)
    pixels[:, 56:] = (255, 0, 0)
    Image.fromarray(pixels).save(place / "data" / "red.png")
    parts = [
        ("film", [{"type": "video", "video": "videos/0001.mp4"}, {"type": "text", "text": "What colour is it?"}]),
        ("<i>picture</i>", [{"type": "text", "text": HOSTILE}, {"type": "image", "image": "red.png"}]),
        ("words", "Say nothing."),
    ]
    rows: list[dict[str, Any]] = [
        {"id": name, "messages": [{"role": "user", "content": part}], "answer": "red"} for name, part in parts
    ]
    rows[1]["answer"] = ["red", 2]
    (place / "data/three.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    job = job_from(
        {
            "apiVersion": "rollplex.io/v1alpha1",
            "kind": "RollplexJob",
            "metadata": {"name": "film"},
            "spec": {
                "model": {"path": str(place / "model")},
                "data": {"train": str(place / "data/three.jsonl")},
                "reward": [{"name": "exact"}, {"name": "length", "options": {"maxTokens": 9, "bufferTokens": 8}}],
                "training": {"steps": 9},
            },
        }
    )
    run = place / "runs/film"
    (run / "rollouts").mkdir(parents=True)
    (run / "job.yaml").write_text(resolved_yaml(job))
    prompts = _prompts(place / "model", job.spec.data)
    for step in STEPS:
        save_rollouts(run / "rollouts", step, prompts, *_responses(len(prompts), step))
    metrics = [{"step": step, "reward/mean": step / 10, "loss": 0.5} for step in range(1, 6)]
    metrics[3]["eval/reward/mean"] = 0.75
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in metrics) + '{"step": 6, "rew')
    return run


def _write_model(folder: Path) -> None:
    tiny = SHAPES["qwen2.5-vl-tiny"]
    shape = with_tokens(tiny, save_processor(folder, tiny.model_type))
    (folder / "config.json").write_text(json.dumps(config_of_shape(shape)))


def _prompts(model: Path, data: DataSpec) -> list[Prompt]:
    reader = Reader(model, data)
    try:
        return reader.read_all(read_rows(data.train, "spec.data.train", columns_of(data)), "spec.data.train")
    finally:
        reader.close()


def _responses(prompts: int, step: int) -> tuple[list[Response], dict[tuple[int, int], Judged]]:
    """Reward of sample i of prompt p is i / 3 (all 0.5 for the last prompt), its text from TEXTS."""
    responses, judged = [], {}
    for p in range(prompts):
        for i in range(4):
            length = i + 1
            ids, logprobs = tuple(range(5, 5 + length)), (-0.5,) * length
            stopped = i != 3
            text = TEXTS[i] if step == STEPS[-1] else "earlier"
            responses.append(
                Response(p, i, ids, logprobs, "stop" if stopped else "length", "##" if stopped else None, text)
            )
            reward = 0.5 if p == prompts - 1 else i / 3
            judged[p, i] = Judged(reward, {"exact": reward, "length": -0.0}, 0.0 if reward == 0.5 else i - 1.5)
    return responses, judged
