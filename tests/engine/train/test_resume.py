"""A run that was cut short and went on is the run that was not: the same bits, the same samples, the same history."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from rollplex.api.errors import JobError, RunStopped
from rollplex.api.load import load_job
from rollplex.checkpoint.store import CheckpointStore
from rollplex.memory.gradients import Gradients
from rollplex.train import train
from tests.engine.train.conftest import STEPS, Run, command, read_run

Document = Callable[..., dict[str, Any]]
# what depends on the clock, on which process ran the step (its features are cached), and on the target step
OTHERS = ("seconds/", "tokens/per_second", "schedule/mode", "tokens/vision", "data/cache", "eval/")

SLOW_REWARD = """
import time
from pathlib import Path

def hold(response, answer, row):
    while row["id"] in Path({hold!r}).read_text().split():
        time.sleep(0.02)
    return 0.0
"""


def tensors(run: Path) -> tuple[int, dict[str, torch.Tensor]]:
    """The newest checkpoint: its step and all of its tensors."""
    found = CheckpointStore(run / "checkpoints").newest(lambda step, fault: pytest.fail(f"{step}: {fault}"))
    assert found is not None
    # copies: the file itself is mapped, and one test spoils it
    return found.step, {name: tensor.clone() for name, tensor in found.tensors()}


def assert_same_bits(one: Path, other: Path, drawn: bool = True) -> None:
    """``drawn`` False: torch's random state may differ, since the engine drew another number of times from it."""
    (step, ours), (same_step, theirs) = tensors(one), tensors(other)
    assert step == same_step
    assert ours.keys() == theirs.keys()
    assert any(name.endswith("/exp_avg_sq") for name in ours)
    for name in ours:
        assert torch.equal(ours[name], theirs[name]) or (name == "rng/torch" and not drawn), name


def assert_same_history(one: Path, other: Path) -> None:
    """Rows, prompts and responses of every step, each once."""

    def history(run: Path) -> list[dict[str, Any]]:
        return [{k: v for k, v in row.items() if not k.startswith(OTHERS)} for row in read_run(run, "").rows]

    for ours, theirs in zip(history(one), history(other), strict=True):
        assert {k: (v, theirs.get(k)) for k, v in ours.items() if v != theirs.get(k)} == {}
    for path in sorted((one / "rollouts").iterdir()):
        assert path.read_text() == (other / "rollouts" / path.name).read_text(), path.name


@pytest.fixture(scope="module")
def straight(workplace: Path, trained: Run, document: Document) -> Path:
    """Six live steps at once, by the command line."""
    done = command("train", "job.yaml", "--name", "straight", "--set", f"training.steps={2 * STEPS}", cwd=workplace)
    assert done.returncode == 0, done.stderr[-2000:]
    return workplace / "runs/straight"


def test_three_steps_and_three_more_are_six_live_steps_bit_for_bit(
    workplace: Path, trained: Run, straight: Path
) -> None:
    """The engine samples, deterministic stream; case 47."""
    shutil.copytree(trained.folder, workplace / "runs/parts")
    done = command("train", "job.yaml", "--name", "parts", "--set", f"training.steps={2 * STEPS}", cwd=workplace)
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"going on after step {STEPS} (saved " in done.stdout
    assert f"  changed since then: spec.training.steps: {STEPS} -> {2 * STEPS}" in done.stdout
    assert f"step {STEPS}/" not in done.stdout
    assert_same_bits(workplace / "runs/parts", straight, drawn=False)  # a last step is evaluated: here 3 and 6
    assert_same_history(workplace / "runs/parts", straight)
    ours, theirs = read_run(workplace / "runs/parts", "").rows, read_run(straight, "").rows
    assert ours[-1]["eval/reward/mean"] == theirs[-1]["eval/reward/mean"]
    assert [row["schedule/mode"] for row in ours] == ["serial", "stream", "stream"] * 2


@pytest.fixture
def replay(trained: Run, document: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Trains in this process on the saved rollouts of the live run; returns the run folder."""
    monkeypatch.chdir(tmp_path)

    def run(name: str, *overrides: str, fresh: bool = False, **sections: Any) -> Path:
        Path("job.yaml").write_text(yaml.safe_dump(document(evaluation=None, **sections)))
        given = [f"rollout.replay={trained.rollouts}", *overrides]
        train(load_job(Path("job.yaml"), given, context="train", ranks=1), name, fresh)
        return tmp_path / "runs" / name

    return run


@pytest.mark.parametrize("mode", ["serial", "overlap", "stream"])
def test_resumed_replay_is_the_straight_one(replay: Callable[..., Path], mode: str) -> None:
    schedule = {"mode": mode, "deterministic": mode == "stream"}
    straight = replay("straight", schedule=schedule)
    replay("parts", "training.steps=1", schedule=schedule)
    parts = replay("parts", schedule=schedule)
    assert_same_bits(parts, straight)
    assert_same_history(parts, straight)


def test_optimizer_on_the_host_goes_on_as_the_one_beside_the_weights(replay: Callable[..., Path]) -> None:
    straight = replay("straight")
    replay("parts", "training.steps=1")
    parts = replay("parts", "memory.optimizer=host")
    assert_same_bits(parts, straight)
    assert_same_history(parts, straight)


def test_finished_run_says_so_and_a_changed_job_is_refused(
    replay: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run = replay("run", "training.steps=1")
    before = tensors(run)
    replay("run", "training.steps=1")
    assert "finished, step 1 of 1 is reached; a larger training.steps goes on" in capsys.readouterr().out
    with pytest.raises(JobError) as caught:
        replay("run", "training.seed=6", "rollout.temperature=0.5", "training.optimizer.learningRate=0.5")
    assert [fault.path for fault in caught.value.faults] == ["spec.rollout.temperature", "spec.training.seed"]
    assert "5 -> 6" in str(caught.value)
    assert tensors(run)[0] == before[0]
    replay("run", "training.steps=1", fresh=True)
    assert "moved aside to" in capsys.readouterr().out
    assert tensors(run.with_name("run.old-1"))[0] == 1


def test_damaged_checkpoint_is_named_and_the_one_before_is_taken(
    replay: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    straight = replay("run", "checkpoint.everySteps=1")
    whole = tensors(straight)
    shard = next((straight / "checkpoints/step-000003").glob("*.safetensors"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 4
    shard.write_bytes(content)
    (straight / "checkpoints/.writing-step-000009").mkdir()
    capsys.readouterr()
    replay("run", "checkpoint.everySteps=1")
    said = [line for line in capsys.readouterr().out.splitlines() if "damaged" in line]
    assert len(said) == 1
    assert f"checkpoint of step 3 is damaged: the content of {shard.name} has changed" in said[0]
    assert said[0].endswith("step 2 is taken")
    assert all(torch.equal(whole[1][name], tensor) for name, tensor in tensors(straight)[1].items())
    assert sorted(path.name for path in (straight / "checkpoints").iterdir()) == [
        "damaged-step-000003",
        "step-000001",
        "step-000002",
        "step-000003",
    ]


def test_checkpoint_path_puts_the_run_folder_beside_its_checkpoints(
    replay: Callable[..., Path], tmp_path: Path
) -> None:
    replay("any", "training.steps=1", f"checkpoint.path={tmp_path / 'kept'}")
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["run", "step-000001"]
    assert len(read_run(tmp_path / "kept/run", "").rows) == 1
    assert not (tmp_path / "runs").exists()


def test_updates_that_are_not_finite_are_skipped_kept_and_end_the_run(
    replay: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Gradients, "norm", lambda self: float("nan"))
    with pytest.raises(RunStopped, match=r"step 2: loss or gradient was not finite in 2 steps in a row.*nonfinite"):
        replay("run", "training.maxSkippedUpdates=2", "rollout.parityEverySteps=100")
    run = tmp_path / "runs/run"
    rows = read_run(run, "").rows
    assert [(row["update/nonfinite"], row["update/skipped"], row["grad/norm"]) for row in rows] == [(1, 1, None)] * 2
    for name in ("step-000001.jsonl", "step-000002.jsonl"):
        assert (run / "nonfinite" / name).read_text() == (run / "rollouts" / name).read_text()
    step, kept = tensors(run)
    assert step == 2
    assert not any(name.endswith("exp_avg") for name in kept), "no update was applied"
    assert CheckpointStore(run / "checkpoints").read(2).state()["nonfinite_in_a_row"] == 2


class Process:
    """The command line on saved rollouts, which a reward holds up at one prompt."""

    def __init__(self, workplace: Path) -> None:
        rollplex = Path(sys.executable).with_name("rollplex")
        self._process = subprocess.Popen(
            [rollplex, "train", "signals.yaml", "--name", "signals"],
            cwd=workplace, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            # where the tests run in the background of a shell SIGINT is ignored, and children would inherit that
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
        self.lines: list[str] = []

    def until(self, text: str) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line)
            if text in line:
                return
        raise AssertionError("".join(self.lines))

    def end(self, number: int) -> None:
        os.kill(self._process.pid, number)

    def code(self) -> int:
        assert self._process.stdout is not None
        self.lines += self._process.stdout
        return self._process.wait(60)


def test_killed_terminated_and_interrupted_run_is_the_straight_one(
    workplace: Path, straight: Path, document: Document, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cases 48 and 49: kill -9, SIGTERM and Ctrl-C while step 4 of 6 waits for a reward, workers reading ahead."""
    first = json.loads((straight / "rollouts/step-000004.jsonl").read_text().splitlines()[0])["prompt_id"]
    hold = workplace / "hold"
    hold.write_text(first)
    (workplace / "slow.py").write_text(SLOW_REWARD.format(hold=str(hold)))
    job = document(
        reward=[{"name": "exact"}, {"python": f"{workplace / 'slow.py'}:hold", "timeoutSeconds": 100}],
        checkpoint={"everySteps": 2},
        evaluation=None,
    )
    job["spec"]["training"]["steps"] = 6
    job["spec"]["rollout"]["replay"] = str(straight / "rollouts")
    (workplace / "signals.yaml").write_text(yaml.safe_dump(job))
    run = workplace / "runs/signals"

    killed = Process(workplace)
    killed.until("step 3/6")
    killed.end(signal.SIGKILL)
    assert killed.code() == -signal.SIGKILL
    assert len(read_run(run, "").rows) == 3

    terminated = Process(workplace)
    terminated.until("going on after step 2")
    terminated.until("step 3/6")
    terminated.end(signal.SIGTERM)
    assert terminated.code() == 143
    assert "SIGTERM: saving the last finished step\n" in terminated.lines
    assert terminated.lines[-1] == "saved after step 3 of 6; the same command goes on from there\n"
    assert (tensors(run)[0], len(read_run(run, "").rows)) == (3, 3)

    interrupted = Process(workplace)
    interrupted.until("going on after step 3")
    interrupted.until("starting the rollout engine: done")
    time.sleep(0.5)
    interrupted.end(signal.SIGINT)
    interrupted.until("Ctrl-C: finishing the step")
    hold.write_text("")
    assert interrupted.code() == 130
    assert (tensors(run)[0], len(read_run(run, "").rows)) == (4, 4)

    monkeypatch.chdir(workplace)
    train(load_job("signals.yaml", context="train", ranks=1), "signals")
    assert_same_bits(run, straight, drawn=False)
    ids = [row["prompt_id"] for step in range(1, 7) for row in samples(run, step)]
    assert ids == [row["prompt_id"] for step in range(1, 7) for row in samples(straight, step)]
    assert [row["step"] for row in read_run(run, "").rows] == [1, 2, 3, 4, 5, 6]


def samples(run: Path, step: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / f"rollouts/step-{step:06d}.jsonl").read_text().splitlines()]
