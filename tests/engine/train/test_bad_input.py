"""Bad input: one line that names the field, before an engine starts; or a counted skip where a run can go on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rollplex import setup
from rollplex.api.errors import JobError
from rollplex.api.load import load_job
from rollplex.step import parity
from rollplex.train import train
from tests.engine.train.conftest import Run, command, read_run

Rows = list[dict[str, Any]]
Document = Callable[..., dict[str, Any]]


@pytest.fixture
def data(workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the data that a test may break, in the folder where the run takes place."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(workplace / "data", tmp_path / "data")
    return tmp_path / "data"


def change_rows(path: Path, change: Callable[[dict[str, Any]], None], count: int | None = None) -> None:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows[:count]:
        change(row)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def drop_answer(row: dict[str, Any]) -> None:
    del row["answer"]


def drop_part(row: dict[str, Any]) -> None:
    part = row["messages"][0]["content"].pop(0)
    row["videos"] = [part["video"]]


def no_video(data: Path) -> None:
    (data / "videos/0003.mp4").unlink()


def unreadable_videos(data: Path) -> None:
    for path in (data / "videos").glob("*.mp4"):
        path.write_bytes(path.read_bytes()[:200])


@pytest.mark.parametrize(
    ("breaks", "sections", "says"),
    [
        (no_video, {}, r"spec\.data\.train: data/train\.jsonl:5: row .*0003.* media file .*0003\.mp4 does not exist"),
        (unreadable_videos, {}, r"spec\.data\.train: no row can be used; skipped: unreadable"),
        (
            lambda data: change_rows(data / "train.jsonl", drop_answer),
            {},
            r"spec\.data\.train: .*train\.jsonl:1: column 'answer' is missing; the row has id, messages, kind",
        ),
        (
            lambda data: change_rows(data / "train.jsonl", drop_part),
            {},
            r"spec\.data\.train: .*train\.jsonl:1: column 'videos' holds media, but no message has a part",
        ),
        (lambda data: (data / "train.jsonl").unlink(), {}, r"spec\.data\.train: .*train\.jsonl does not exist"),
        (lambda data: None, {"maxPromptTokens": 20}, r"no row can be used; skipped: too_long.*maxPromptTokens is 20"),
    ],
    ids=["missing video", "unreadable", "no answer", "no placeholder", "no file", "too long"],
)
def test_bad_data_is_refused_before_an_engine(
    data: Path,
    document: Document,
    monkeypatch: pytest.MonkeyPatch,
    breaks: Callable[[Path], None],
    sections: dict[str, Any],
    says: str,
) -> None:
    def started(*_: object) -> None:
        pytest.fail("a model was loaded before the data was looked at")

    monkeypatch.setattr(setup, "build_models", started)
    breaks(data)
    job = document(data={"train": "data/train.jsonl", "maxPromptTokens": 256, **sections}, evaluation=None)
    Path("job.yaml").write_text(yaml.safe_dump(job))
    with pytest.raises(JobError, match=says):
        train(load_job(Path("job.yaml"), context="train", ranks=1), "bad")
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (
            ["data.maxPromptTokens=3000"],
            r"^spec\.data\.maxPromptTokens: 3000, with rollout\.maxTokens 6 .* more than the model's 2048 positions",
        ),
        (["rollout.maxTokens=2048"], r"^spec\.data\.maxPromptTokens: 256, with rollout\.maxTokens 2048"),
        (["rollout.stop=[9999]"], r"^spec\.rollout\.stop: 9999 is no token of the model; its ids end at 511"),
    ],
)
def test_what_the_model_cannot_do_is_said_before_an_engine(
    workplace: Path,
    document: Document,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    overrides: list[str],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(yaml.safe_dump(document(evaluation=None)))
    with pytest.raises(JobError, match=says):
        train(load_job(Path("job.yaml"), overrides, context="train", ranks=1), "bad")


def test_the_longest_prompt_is_what_the_model_has_room_for(workplace: Path, document: Document, tmp_path: Path) -> None:
    """A job that is silent about it does not ask a small model for 8192 tokens."""
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(document(data={"train": str(workplace / "data/train.jsonl")})))
    job = load_job(tmp_path / "job.yaml", context="train", ranks=1)
    assert setup.resolved(job, setup.model_shape(job.spec)).spec.data.max_prompt_tokens == 2048 - 6


def cut_weights(model: Path) -> None:
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])


def no_tokenizer(model: Path) -> None:
    for path in model.glob("tokenizer*.json"):
        path.unlink()


@pytest.mark.parametrize(
    ("breaks", "says"),
    [
        (cut_weights, r"^spec\.model\.path: .*model\.safetensors cannot be read .*; is it whole\?"),
        (no_tokenizer, r"^spec\.model\.path: "),
    ],
)
def test_a_damaged_model_folder_is_refused(
    workplace: Path,
    document: Document,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    breaks: Callable[[Path], None],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(workplace / "model", tmp_path / "model")
    breaks(tmp_path / "model")
    Path("job.yaml").write_text(yaml.safe_dump(document(evaluation=None, model={"path": "model"})))
    with pytest.raises(JobError, match=says):
        train(load_job(Path("job.yaml"), context="train", ranks=1), "bad")


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["algorithm.name=ppo"], "spec.algorithm.name"),
        (["algorithm.groupSize=1"], "spec.algorithm.groupSize: 1 is below the minimum 2"),
        (["rollout.topP=0.8"], "spec.rollout.topP: refused for training"),
        (["training.stepz=3"], "spec.training.stepz"),
        (["model.path=/nowhere"], "spec.model.path"),
    ],
)
def test_command_line_names_the_field_and_exits_2(
    workplace: Path, trained: Run, overrides: list[str], says: str
) -> None:
    options = [part for override in overrides for part in ("--set", override)]
    done = command("train", "job.yaml", *options, "--name", "refused", cwd=workplace)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not (workplace / "runs/refused").exists()


def test_an_unreadable_video_is_skipped_and_counted(
    data: Path, document: Document, caplog: pytest.LogCaptureFixture
) -> None:
    """One of 16 videos is cut short, one text is too long: the run goes on without these three rows, and says so."""
    broken = data / "videos/0002.mp4"
    broken.write_bytes(broken.read_bytes()[:300])
    wordy = {"id": "wordy", "messages": [{"role": "user", "content": "colour " * 500}], "answer": "red"}
    with (data / "train.jsonl").open("a") as rows:
        rows.write(json.dumps(wordy) + "\n")
    sections = {
        "data": {"train": "data/train.jsonl", "maxPromptTokens": 256},
        "training": {"promptsPerStep": 30, "steps": 1, "seed": 5},
        "algorithm": {"groupSize": 2, "kl": {"coefficient": 0}},
        "evaluation": None,
    }
    Path("job.yaml").write_text(yaml.safe_dump(document(**sections)))
    job = load_job(Path("job.yaml"), context="train", ranks=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(setup, "build_rollout", lambda *_: _Echo())
        patch.setattr(parity, "MAX_FP32", float("inf"))  # its log probabilities are made up
        train(job, "skips")
    (row,) = read_run(Path("runs/skips"), "").rows
    assert row["data/skipped"] == 3
    assert "0002-colour" in caplog.text
    assert "0002-direction" in caplog.text
    assert "spec.data.train: 1 of 33 rows left out: text alone above maxPromptTokens 256" in caplog.text


class _Echo:
    """A rollout that answers every prompt with one token; what is under test is the data."""

    def __init__(self) -> None:
        self.version = self.decode_batch = self.decode_tokens = self.prefill_tokens = self.stalled = 0
        self._waiting: list[Any] = []

    @property
    def unfinished(self) -> int:
        return len(self._waiting)

    def submit(self, step: int, prompts: Any, group_size: int, sampling: Any) -> None:
        from rollplex.batch import Response

        self._waiting = [
            Response(prompt, sample, (5,), (-1.0,), "length", text="red")
            for prompt in range(len(prompts))
            for sample in range(group_size)
        ]

    def step(self) -> list[Any]:
        done, self._waiting = self._waiting, []
        return done

    def positions(self, prompt: Any) -> None:
        return None

    def publish(self) -> int:
        self.version += 1
        return self.version

    def retire(self) -> None: ...
    def abort_all(self) -> None: ...
    def close(self) -> None: ...
