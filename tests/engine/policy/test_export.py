"""A checkpoint as a Hugging Face folder: transformers loads it, its README's own lines give the policy's numbers."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import rollplex.export
from rollplex.api.errors import JobError
from rollplex.api.shapes import shape_from_folder
from rollplex.batch import Media, Prompt
from rollplex.checkpoint.store import CheckpointStore
from rollplex.export import export
from rollplex.policy.policy import Policy, load_policy
from rollplex.positions import positions_of_inputs
from rollplex.weights.hf import hf_views
from rollplex.weights.shards import Entry
from tests.engine.policy.passes import SplitPass, group_of
from tests.engine.tiny import make_folder, medium, prompt, random_policy, text, tiny_shape


def older_name(name: str, model_type: str) -> str:
    """As Qwen's own folders call it: those of Qwen2.5-VL are of before transformers 5."""
    if model_type != "qwen2_5_vl":
        return name
    return name.replace("model.language_model.", "model.").replace("model.visual.", "visual.")


class Trained:
    """A run folder whose newest checkpoint is a policy, and the folder that the policy once came from."""

    def __init__(self, place: Path, tied: bool, model_type: str = "qwen2_5_vl") -> None:
        shape = tiny_shape(tied, model_type)
        self.first, self.policy = random_policy(shape, seed=1), random_policy(shape, seed=2)
        self.source = make_folder(place / "model", shape)
        views = hf_views(
            dict(self.first.language.named_parameters()), dict(self.first.visual.named_parameters()), shape
        )
        old = {older_name(name, model_type): view.tensor().detach().clone() for name, view in views.items()}
        save_file(old, self.source / "model.safetensors")
        self.run = place / "runs/demo"
        store = CheckpointStore(self.run / "checkpoints")
        state = {"job": {"metadata": {"name": "demo"}, "spec": {"model": {"path": str(self.source)}}}}
        for step, policy in ((10, self.first), (20, self.policy)):
            entries = {f"actor/{name}": Entry.of(p.detach()) for name, p in policy.named_parameters()}
            store.write(step, entries | {"optimizer/steps": Entry.of(torch.tensor(step))}, state, 0.5, 1 << 20)


@pytest.fixture(params=[(False, "qwen2_5_vl"), (True, "qwen2_5_vl"), (False, "qwen3_vl"), (True, "qwen3_vl")], ids=str)
def trained(request: pytest.FixtureRequest, tmp_path: Path) -> Trained:
    return Trained(tmp_path, *request.param)


def assert_weights(folder: Path, policy: Policy) -> None:
    loaded = dict(load_policy(folder).named_parameters())
    for name, parameter in policy.named_parameters():
        assert torch.equal(loaded[name], parameter), name


def test_export_comes_back_bit_for_bit_in_shards(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollplex.export, "SHARD_BYTES", 600_000)
    said: list[str] = []
    export(str(trained.run), tmp_path / "out", None, said.append)
    out = tmp_path / "out"
    assert_weights(out, trained.policy)
    assert len(said) == 1
    assert said[0].startswith(f"{out}: step 20 of demo, ")
    shards = sorted(out.glob("*.safetensors"))
    assert len(shards) > 3
    index = json.loads((out / "model.safetensors.index.json").read_text())
    held = {name: shard.name for shard in shards for name in load_file(shard)}
    assert index["weight_map"] == held
    assert held.keys() == load_file(trained.source / "model.safetensors").keys()
    others = {path.name for path in trained.source.iterdir()} - {"model.safetensors"}
    assert {path.name for path in out.iterdir()} == others | set(held.values()) | {
        "README.md",
        "model.safetensors.index.json",
    }


def test_export_of_an_older_step(trained: Trained, tmp_path: Path) -> None:
    export(str(trained.run), tmp_path / "out", 10, lambda line: None)
    assert_weights(tmp_path / "out", trained.first)
    assert "step 10" in (tmp_path / "out/README.md").read_text()


def prompt_of(inputs: Any, folder: Path) -> Prompt:
    """What transformers' processor made of a prompt, as ours."""
    shape = shape_from_folder(folder)
    ids = inputs["input_ids"][0].tolist()
    grid = tuple(inputs["video_grid_thw"][0].tolist())
    seconds = float(inputs["second_per_grid_ts"][0]) if "second_per_grid_ts" in inputs else 1.0
    video = Media("video", inputs["pixel_values_videos"], grid, seconds)
    starts = tuple(at for at, (a, b) in enumerate(pairwise(ids), 1) if a != b == shape.video_token)
    return Prompt("p", tuple(ids), positions_of_inputs(inputs, shape)[:, 0], (video,), (starts,))


AS_A_USER = """
import numpy, sys, torch

folder, videos, fps = sys.argv[1], [numpy.load(sys.argv[2])], 2.0
text = "What colour<|vision_start|><|video_pad|><|vision_end|>is the moving cube?"
torch.set_grad_enabled(False)
{code}
theirs = model(**inputs).logits
torch.save({{"inputs": dict(inputs), "logits": logits[0, -1], "theirs": theirs[0, -1]}}, sys.argv[3])
"""


def test_the_readmes_own_lines_give_the_policys_log_probabilities(trained: Trained, tmp_path: Path) -> None:
    """In a process of their own, as a user runs them: here nothing would show that an import fails."""
    folder = tmp_path / "out"
    export(str(trained.run), folder, None, lambda line: None)
    code = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.S)[0]
    frames = np.random.default_rng(0).integers(0, 255, (12, 3, 84, 56), dtype=np.uint8)
    np.save(tmp_path / "frames.npy", frames)
    arguments = [str(folder), str(tmp_path / "frames.npy"), str(tmp_path / "found.pt")]
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("VLLM", "HF_", "TORCH"))}
    done = subprocess.run(
        [sys.executable, "-c", AS_A_USER.format(code=code), *arguments],
        capture_output=True, text=True, timeout=240, check=False, env=plain,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found = torch.load(tmp_path / "found.pt")
    some = list(range(0, 480, 7))
    with torch.no_grad():
        ours = prompt_of(found["inputs"], folder)
        scored = SplitPass(trained.policy, [group_of(0, ours, *([token] for token in some))]).scored
    logp = found["logits"].log_softmax(-1)
    for sample, token in enumerate(some):
        assert abs(float(scored[0, sample][0]) - float(logp[token])) <= 1e-5
    # what the README warns of: without our ids the same model says something else, unless rows are placed one by one
    off = float((found["theirs"].log_softmax(-1) - logp).abs().max())
    assert off <= 1e-5 if trained.policy.shape.family.time_as_text else off > 1e-3


def test_positions_of_inputs_are_those_of_the_prompt() -> None:
    shape = tiny_shape()
    image = medium("image", (1, 4, 8), 3, shape)
    videos = [medium("video", (4, 6, 6), seed, shape, seconds=seconds) for seed, seconds in ((1, 1.0), (2, 0.5))]
    # a sampled placeholder at the end stands for nothing
    item = prompt("p", shape, [text(3, 1), videos[0], text(2, 2), image, videos[1], [*text(4, 3), shape.image_token]])
    inputs = {
        "input_ids": [list(item.token_ids)],
        "image_grid_thw": [list(image.grid)],
        "video_grid_thw": torch.tensor([list(video.grid) for video in videos]),
        "second_per_grid_ts": [1.0, 0.5],
    }
    assert torch.equal(positions_of_inputs(inputs, shape)[:, 0], item.positions)
    words = {"input_ids": torch.tensor([[1, 2, 3]])}
    assert positions_of_inputs(words, shape)[:, 0].tolist() == [[0, 1, 2]] * 3


def test_bad_exports_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = Trained(tmp_path, tied=False)

    def refused(run: str, out: str = "out", step: int | None = None) -> str:
        with pytest.raises(JobError) as caught:
            export(run, tmp_path / out, step, lambda line: None)
        return str(caught.value)

    monkeypatch.chdir(tmp_path)
    assert refused("nonsense") == "RUN: runs/nonsense is no folder; runs here: demo"
    assert refused("demo", step=15) == "--step: 15 has no checkpoint; there are 10, 20"
    assert "is there already" in refused("demo", out="model")
    (tmp_path / "runs/empty").mkdir()
    assert "has no checkpoint; one is saved every checkpoint.everySteps" in refused("empty")
    shard = next((trained.run / "checkpoints/step-000020").glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-1])
    assert "the checkpoint of step 20 is damaged" in refused("demo", step=20)
    said: list[str] = []
    export("demo", tmp_path / "out", None, said.append)
    assert said[0].startswith("checkpoint of step 20 is damaged")
    assert said[1].startswith(f"{tmp_path / 'out'}: step 10 of demo")
    (tmp_path / "model/config.json").unlink()
    assert "config.json is missing" in refused("demo", out="other")


def test_an_export_that_the_disk_does_not_take_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = Trained(tmp_path, tied=False)
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(JobError, match=r"^--out: .*file/out cannot be written: Not a directory; make room there, or"):
        export(str(trained.run), tmp_path / "file/out", None, lambda line: None)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limit[1]))  # the weights are larger
    try:
        with pytest.raises(JobError) as caught:
            export(str(trained.run), tmp_path / "new/out", None, lambda line: None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    needed = load_file(trained.source / "model.safetensors").values()
    bytes_needed = f"{sum(tensor.numel() * tensor.element_size() for tensor in needed):,}"
    said = str(caught.value)
    assert f"--out: {tmp_path / 'new/out'} cannot be written: {os.strerror(errno.EFBIG)}; {bytes_needed} bytes" in said
    assert list((tmp_path / "new").iterdir()) == []
    export(str(trained.run), tmp_path / "new/out", None, lambda line: None)
    assert_weights(tmp_path / "new/out", trained.policy)
