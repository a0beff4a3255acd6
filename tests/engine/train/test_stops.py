"""A run that is stopped at a bad moment and goes on: during an evaluation, at the end of an epoch, on a full disk."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from rollplex import setup
from rollplex.api.errors import RunInterrupted, StepFailed
from rollplex.api.load import load_job
from rollplex.batch import Prompt, Response
from rollplex.checkpoint.store import CheckpointStore
from rollplex.rollout.protocol import Sampling
from rollplex.step.runner import Models
from rollplex.telemetry.tracker import JsonlTracker
from rollplex.train import train
from tests.engine.train.conftest import read_run
from tests.engine.train.scripted import Scripted, scripted

Document = Callable[..., dict[str, Any]]


class Examined(Scripted):
    """What it answers in an evaluation follows from the weights alone; ``ends`` evaluations get a SIGTERM."""

    def __init__(self, *ends: int) -> None:
        super().__init__()
        self.models: Models | None = None
        self.evaluations = 0
        self._ends = ends

    def submit(self, step: int, prompts: Sequence[Prompt], group_size: int, sampling: Sampling) -> None:
        super().submit(step, prompts, group_size, sampling)
        if step == 0:
            assert self.models is not None
            digest = hashlib.blake2b(digest_size=8)
            for parameter in self.models.actor.parameters():
                digest.update(parameter.detach().numpy().tobytes())
            self._waiting = [self._answer(response, prompts, digest.digest()) for response in self._waiting]
            self.evaluations += 1
            if self.evaluations in self._ends:
                os.kill(os.getpid(), signal.SIGTERM)

    def _answer(self, response: Response, prompts: Sequence[Prompt], seed: bytes) -> Response:
        place = f"{response.prompt} {response.sample}".encode()
        right = hashlib.blake2b(seed + place).digest()[0] % 2
        return Response(
            response.prompt, response.sample, (5,), (-1.0,), "length",
            text=str(prompts[response.prompt].answer) if right else "wrong",
        )  # fmt: skip

    def step(self) -> list[Response]:
        return [self._waiting.pop()] if self._waiting else []


@contextmanager
def examined(*ends: int) -> Iterator[Examined]:
    rollout = Examined(*ends)

    def build(spec: Any, models: Models, version: int = 0) -> Examined:
        rollout.models = models
        return rollout

    with scripted(rollout), pytest.MonkeyPatch.context() as patch:
        patch.setattr(setup, "build_rollout", build)
        yield rollout


def start(name: str, *overrides: str) -> Path:
    train(load_job(Path("job.yaml"), overrides, context="train", ranks=1), name)
    return Path("runs") / name


@pytest.fixture
def job(document: Document, workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    evaluation = {"data": str(workplace / "data/val.jsonl"), "everySteps": 2, "samples": 2, "greedy": False}
    Path("job.yaml").write_text(yaml.safe_dump(document(evaluation=evaluation, tracking={"tensorboard": True})))


def evaluations(run: Path) -> dict[int, dict[str, float]]:
    return {
        row["step"]: {name: value for name, value in row.items() if name.startswith("eval/")}
        for row in read_run(run, "").rows
    }


def columns(run: Path) -> list[list[str]]:
    return [[name for name in row if name != "seconds/checkpoint"] for row in read_run(run, "").rows]


@pytest.mark.parametrize(("end", "step"), [(1, 2), (2, 3)], ids=["between steps", "after the last step"])
def test_an_evaluation_cut_by_sigterm_is_made_by_whoever_goes_on(
    job: None, end: int, step: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with examined():
        straight = start("straight")
    assert [sorted(found) for found in evaluations(straight).values()] == [[], *2 * [EVALUATED]]
    with examined(end), pytest.raises(RunInterrupted, match=f"saved after step {step} of 3; .*its evaluation$") as cut:
        start("cut")
    assert cut.value.exit_code == 143
    store = CheckpointStore(Path("runs/cut/checkpoints"))
    assert evaluations(Path("runs/cut"))[step] == {}
    assert (store.read(step).score, store.read(step).state()["unevaluated"]) == (None, True)

    with examined(1), pytest.raises(RunInterrupted):  # and once more, in the middle of making up for it
        start("cut")
    capsys.readouterr()
    with examined() as rollout:
        run = start("cut")
    assert f"evaluation after step {step}, which was cut short: reward " in capsys.readouterr().out
    assert rollout.evaluations == (2 if step == 2 else 1)
    assert evaluations(run) == evaluations(straight)
    assert [row["step"] for row in read_run(run, "").rows] == [1, 2, 3]
    assert columns(run) == columns(straight)
    assert store.scored() == CheckpointStore(straight / "checkpoints").scored()
    assert store.newest(lambda at, fault: pytest.fail(f"{at}: {fault}")) is not None
    with examined() as rollout:
        start("cut")
    assert rollout.evaluations == 0
    assert "finished, step 3 of 3 is reached" in capsys.readouterr().out


EVALUATED = ["eval/pass@1", "eval/pass@2", "eval/reward/mean"]


def test_an_evaluation_cut_short_is_not_made_where_the_job_no_longer_asks_for_it(job: None) -> None:
    with examined(1), pytest.raises(RunInterrupted):
        start("cut")
    with examined() as rollout:
        run = start("cut", "evaluation.everySteps=100")
    assert rollout.evaluations == 1  # that of the last step
    assert [sorted(found) for found in evaluations(run).values()] == [[], [], EVALUATED]


def test_a_changed_evaluation_is_listed_and_begins_a_best_of_its_own(
    job: None, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep = ("checkpoint.keepLast=1", "checkpoint.keepBest=1", "evaluation.everySteps=1")
    with examined():
        start("run", "training.steps=2", *keep)
    store = CheckpointStore(Path("runs/run/checkpoints"))
    before = store.scored()
    capsys.readouterr()
    with examined() as rollout:
        run = start("run", "training.steps=4", *keep, "evaluation.samples=8")
    said = capsys.readouterr().out
    assert "  changed since then: spec.evaluation.samples: 2 -> 8\n" in said
    assert rollout.evaluations == 2  # steps 3 and 4: what was measured before stays as it is
    assert [sorted(found) for found in evaluations(run).values()] == 2 * [EVALUATED] + 2 * [
        sorted([*EVALUATED, "eval/pass@4", "eval/pass@8"])
    ]
    assert {found.measured for found in store.scored().values()}.isdisjoint(found.measured for found in before.values())
    scores = {step: found["eval/reward/mean"] for step, found in evaluations(run).items() if step > 2}
    assert set(store.steps()) == {4, max(scores, key=lambda step: (scores[step], step))}


ENTRY = """
import os, signal, sys
sys.path.insert(0, {root!r})
from rollplex.environment import set_defaults
set_defaults()
from rollplex.cli import main
from tests.engine.train.scripted import Scripted, scripted

class Interrupted(Scripted):
    def publish(self):
        if {interrupt} and len(self.batches) == 2:  # step 2 has learnt and publishes
            os.kill(os.getpid(), signal.SIGINT)
        return super().publish()

signal.signal(signal.SIGINT, signal.default_int_handler)  # the background of a shell ignores it
sys.argv = ["rollplex", "train", "epochs.yaml", "--name", {name!r}]
with scripted(Interrupted()):
    main()
"""


def test_eight_prompts_in_batches_of_four_saved_at_step_two_go_on_with_three_and_four(
    document: Document, workplace: Path, tmp_path: Path
) -> None:
    """Case 48: two epochs; exit code 0 only when the target step is reached."""
    rows = (workplace / "data/train.jsonl").read_text().splitlines()[:8]
    data = workplace / "data/eight.jsonl"  # beside the videos
    data.write_text("\n".join(rows) + "\n")
    job = document(
        data={"train": str(data), "maxPromptTokens": 256},
        training={"promptsPerStep": 4, "steps": 4, "seed": 5},
        checkpoint={"everySteps": 2},
        evaluation=None,
    )
    (tmp_path / "epochs.yaml").write_text(yaml.safe_dump(job))

    def command(name: str, interrupt: bool) -> subprocess.CompletedProcess[str]:
        code = ENTRY.format(root=str(Path(__file__).parents[3]), name=name, interrupt=interrupt)
        return subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)

    def prompts(name: str, step: int) -> list[str]:
        lines = (tmp_path / f"runs/{name}/rollouts/step-{step:06d}.jsonl").read_text().splitlines()
        return list(dict.fromkeys(json.loads(line)["prompt_id"] for line in lines))

    straight = command("straight", False)
    assert straight.returncode == 0, straight.stderr
    interrupted = command("parts", True)
    assert interrupted.returncode == 130, interrupted.stderr
    assert interrupted.stderr == "saved after step 2 of 4; the same command goes on from there\n"
    resumed = command("parts", False)
    assert resumed.returncode == 0, resumed.stderr
    assert "going on after step 2 (saved " in resumed.stdout
    taken = [line.split()[1] for line in resumed.stdout.splitlines() if line.startswith("step ")]
    assert taken == ["3/4", "4/4"]
    every = sorted(json.loads(row)["id"] for row in rows)
    for epoch in ((1, 2), (3, 4)):
        assert sorted(prompts("parts", epoch[0]) + prompts("parts", epoch[1])) == every
    assert [prompts("parts", step) for step in range(1, 5)] == [prompts("straight", step) for step in range(1, 5)]


def no_room(*_: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_that_fills_keeps_the_checkpoint_before_and_names_folder_and_bytes(
    job: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with examined():
        straight = start("straight")
    rest = 300_000  # bytes from which on the disk is full, inside the second checkpoint's tensors

    def write(handle: int, part: Any) -> int:
        nonlocal rest
        if any(checkpoint.exists() for checkpoint in [Path("runs/full/checkpoints/step-000001")]):
            rest -= len(part)
        return no_room() if rest < 0 else os_write(handle, part)

    os_write = os.write
    with examined(), monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        with pytest.raises(StepFailed) as failed:
            start("full", "checkpoint.everySteps=1")
    said = str(failed.value)
    assert failed.value.exit_code == 1
    assert "\n" not in said
    assert "the checkpoint of step 2 could not be written to runs/full/checkpoints: No space left on device; " in said
    needed = sum(path.stat().st_size for path in Path("runs/full/checkpoints/step-000001").glob("*.safetensors"))
    (number,) = [part for part in said.split("; ") if part.endswith("are free") or "are needed" in part][:1]
    assert abs(int(number.split()[0].replace(",", "")) - needed) < 0.1 * needed
    assert " bytes are free; the one of step 1 is whole" in said
    assert os.listdir("runs/full/checkpoints") == ["step-000001"]  # and no part of another
    with examined():
        run = start("full", "checkpoint.everySteps=1")
    assert evaluations(run) == evaluations(straight)


def test_a_run_folder_that_takes_no_more_ends_the_run_after_saving(job: None, monkeypatch: pytest.MonkeyPatch) -> None:
    write = JsonlTracker.write
    with examined(), monkeypatch.context() as patch:
        patch.setattr(JsonlTracker, "write", lambda self, at, row: (no_room if at == 2 else write)(self, at, row))
        with pytest.raises(StepFailed, match=r"^after step 2: the run folder runs/full cannot be written: No space"):
            start("full")
    found = CheckpointStore(Path("runs/full/checkpoints")).newest(lambda at, fault: pytest.fail(fault))
    assert found is not None
    assert found.step == 2  # the weights after step 2 under no other number
    with examined():
        run = start("full")
    assert [row["step"] for row in read_run(run, "").rows] == [1, 3]


def test_a_file_that_is_gone_in_the_middle_of_a_step_saves_nothing_and_may_be_tried_again(
    job: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: Any) -> None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/dev/shm/x")

    with examined() as rollout, monkeypatch.context() as patch:
        patch.setattr(rollout, "retire", gone)  # right before the update
        with pytest.raises(StepFailed, match=r"^after step 0: /dev/shm/x: No such file or directory$") as failed:
            start("run")
    assert failed.value.exit_code == 1
    assert CheckpointStore(Path("runs/run/checkpoints")).steps() == []
