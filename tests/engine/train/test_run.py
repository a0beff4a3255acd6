"""What ``rollplex train`` does and leaves behind, on real videos with a real engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import yaml

from rollplex.api.load import load_job
from rollplex.rollout.replay import read_rollouts
from rollplex.train import train
from tests.engine.train.conftest import STEPS, Run, read_run

# what no schedule may change
MATHEMATICS = ("reward/mean", "loss", "kl/mean", "entropy/mean", "grad/norm", "response/tokens_mean")


def test_run_reports_every_step(trained: Run) -> None:
    assert [row["step"] for row in trained.rows] == [1, 2, 3]
    assert [row["weights/version"] for row in trained.rows] == [1, 2, 3]
    assert [row["schedule/mode"] for row in trained.rows] == ["serial", "stream", "stream"]
    for step in range(1, STEPS + 1):
        assert f"step {step}/{STEPS}  reward" in trained.output


def test_run_says_nothing_but_its_own_lines(trained: Run) -> None:
    """torch, vLLM, Megatron-Core and transformers would each add notes that nobody can act on."""
    assert trained.errors == ""
    own = (
        "step ",
        "reading the data",
        "decoding the first media",
        "loading the model",
        "starting the rollout engine",
        "runs/live: ",
    )
    assert [line for line in trained.output.splitlines() if not line.startswith(own)] == []


def test_parity_holds_at_the_first_step_and_after_updates(trained: Run) -> None:
    """After two updates the engine still reads the trainer's weights, and nothing stale from its caches."""
    assert all(row["grad/norm"] > 0 for row in trained.rows)
    for row in trained.rows:
        assert 0 < row["parity/max"] <= 1e-4


def test_seconds_add_up(trained: Run) -> None:
    for row in trained.rows:
        phases = sum(value for key, value in row.items() if key.startswith("seconds/phase/"))
        assert row["seconds/hidden"] + row["seconds/exposed"] == pytest.approx(phases, rel=1e-6)
        assert phases <= row["seconds/step"]
    assert trained.rows[0]["seconds/hidden"] == 0.0
    assert trained.rows[1]["seconds/hidden"] > 0.0


def test_prefix_is_counted_once_per_group(trained: Run) -> None:
    for number, row in enumerate(trained.rows, start=1):
        samples = [
            json.loads(line) for line in (trained.rollouts / f"step-{number:06d}.jsonl").read_text().splitlines()
        ]
        prefixes = {sample["prompt_id"]: len(sample["prompt_token_ids"]) - 1 for sample in samples}
        assert row["tokens/prefix"] == 2 * sum(prefixes.values())  # actor and reference
        assert row["tokens/suffix"] == 2 * sum(len(sample["token_ids"]) for sample in samples)
        assert row["tokens/decode"] == sum(len(sample["token_ids"]) for sample in samples)


def test_held_out_set_is_scored_with_and_without_frames(trained: Run) -> None:
    assert ["eval/reward/mean" in row for row in trained.rows] == [False, True, True]
    last = {key: value for key, value in trained.rows[2].items() if key.startswith("eval/")}
    assert list(last) == [
        "eval/reward/mean",
        "eval/greedy/reward/mean",
        "eval/pass@1",
        "eval/pass@2",
        "eval/blank/reward/mean",
    ]
    assert all(0 <= value <= 1 for value in last.values())
    assert last["eval/pass@1"] == pytest.approx(last["eval/reward/mean"])  # rewards are 0 or 1
    assert last["eval/pass@1"] <= last["eval/pass@2"]


def test_saved_rollouts_say_what_the_step_made_of_them(trained: Run) -> None:
    for number, row in enumerate(trained.rows, start=1):
        saved = read_rollouts(trained.rollouts / f"step-{number:06d}.jsonl")
        assert fmean(sample.reward or 0.0 for sample in saved) == pytest.approx(row["reward/mean"])
        assert all(sample.parts == {"exact": sample.reward} for sample in saved)
        for at in range(0, len(saved), 4):  # an advantage is against the group's mean
            group = saved[at : at + 4]
            mean = fmean(sample.reward or 0.0 for sample in group)
            for sample in group:
                assert sample.advantage is not None
                assert sample.advantage * ((sample.reward or 0.0) - mean) >= 0


def test_run_folder_holds_what_it_promises(trained: Run) -> None:
    folder = trained.folder
    assert (folder / "lanes.png").read_bytes().startswith(b"\x89PNG")
    assert list((folder / "tensorboard").glob("events.*"))
    assert list((folder / "wandb").glob("offline-run-*/*.wandb"))
    trace = json.loads((folder / "trace.json").read_text())
    assert any("actor_suffix" in str(event) for event in trace["traceEvents"])
    resolved = yaml.safe_load((folder / "job.yaml").read_text())
    stops = resolved["spec"]["rollout"]["stop"]
    assert stops
    assert all(isinstance(stop, int) for stop in stops)  # the model's own end tokens, spelled out


@pytest.mark.parametrize("mode", ["serial", "overlap", "stream"])
def test_replay_repeats_the_run(
    trained: Run, document: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Saved rollouts fed back, without an engine: the same numbers, and under the same schedule the same bits."""
    monkeypatch.chdir(tmp_path)
    job = document(schedule={"mode": mode, "deterministic": True}, evaluation=None)
    Path("job.yaml").write_text(yaml.safe_dump(job))
    train(load_job(Path("job.yaml"), [f"rollout.replay={trained.rollouts}"], context="train", ranks=1), "again")
    again = read_run(Path("runs/again"), "")
    for before, after in zip(trained.rows, again.rows, strict=True):
        for key in MATHEMATICS:
            assert after[key] == (
                before[key] if mode == "stream" else pytest.approx(before[key], rel=1e-3, abs=1e-5)
            ), key
        assert after["parity/max"] <= 1e-4


def test_replay_of_other_data_is_refused(
    trained: Run, document: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rollplex.api.errors import StepFailed

    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(yaml.safe_dump(document(evaluation=None)))
    overrides = [f"rollout.replay={trained.rollouts}", "training.seed=6"]
    with pytest.raises(StepFailed, match=r"rollout\.replay: step 1"):
        train(load_job(Path("job.yaml"), overrides, context="train", ranks=1), "other")
