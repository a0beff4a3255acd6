"""Datasets as ROLL, verl and EasyR1 write them train unchanged, on real PNG and mp4."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rollplex.api.load import load_job
from rollplex.train import train
from tests.engine.train.conftest import Run, command, read_run
from tests.engine.train.scripted import scripted
from tests.foreign_sets import easyr1_folder, questions, roll_folder, verl_parquet

ROWS = 8
STEPS = 2
Document = Callable[..., dict[str, Any]]


def job(document: Document, path: Path, **data: Any) -> str:
    sections = {
        "data": {"train": str(path), "maxPromptTokens": 256, **data},
        "training": {"promptsPerStep": 4, "steps": STEPS, "seed": 5, "optimizer": {"warmupSteps": 0}},
        "algorithm": {"groupSize": 2, "kl": {"coefficient": 0}},
        "evaluation": None,
    }
    return yaml.safe_dump(document(**sections))


def saved(run: Run) -> list[dict[str, Any]]:
    files = sorted(run.rollouts.glob("*.jsonl"))
    assert len(files) == STEPS
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def asserted_to_have_trained(run: Run) -> None:
    assert [row["step"] for row in run.rows] == [1, 2]
    assert [row["data/skipped"] for row in run.rows] == [0, 0]
    assert all(row["update/skipped"] == 0 for row in run.rows)


def test_verl_parquet_trains_with_the_engine(workplace: Path, document: Document) -> None:
    """Images out of parquet and videos by path, in one batch, decoded for engine and trainer alike."""
    folder = workplace / "verl"
    folder.mkdir()
    path = verl_parquet(folder, workplace / "data", ROWS)
    (workplace / "verl.yaml").write_text(job(document, path, format="verl"))
    done = command("train", "verl.yaml", "--name", "verl", cwd=workplace)
    assert done.returncode == 0, done.stderr[-2000:]
    run = read_run(workplace / "runs/verl", done.stdout)
    asserted_to_have_trained(run)
    assert max(row["parity/max"] for row in run.rows) <= 1e-4
    assert {sample["prompt_id"] for sample in saved(run)} == {f"train:{number}" for number in range(1, ROWS + 1)}
    assert run.rows[-1]["data/cache_misses"] + run.rows[-1]["data/cache_hits"] > 0


@pytest.mark.parametrize(("style", "write"), [("roll", roll_folder), ("easyr1", easyr1_folder)])
def test_other_trainers_folder_trains(
    workplace: Path,
    document: Document,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    style: str,
    write: Callable[[Path, Path, int], Path],
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = ROWS - 1 if style == "roll" else ROWS  # ROLL's has one of text besides
    path = write(tmp_path / "set", workplace / "data", rows)
    Path("job.yaml").write_text(job(document, path, format=style))
    with scripted() as rollout:
        train(load_job(Path("job.yaml"), context="train", ranks=1), style)
    run = read_run(Path(f"runs/{style}"), "")
    asserted_to_have_trained(run)
    assert all(row["reward/mean"] == 0.5 and row["grad/norm"] > 0 for row in run.rows)
    prompts = [prompt for batch in rollout.batches for prompt in batch]
    kinds = sorted(media.kind for prompt in prompts for media in prompt.media)
    assert kinds == ["image" if style == "roll" else "video"] * rows
    answers = [answer for _, _, answer in questions(workplace / "data", rows)]
    assert sorted(str(prompt.answer) for prompt in prompts) == sorted([*answers, *["yes"] * (ROWS - rows)])


def test_columns_by_hand_train_in_batches_by_video(
    workplace: Path, document: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nested columns, two questions about each video in one batch: encoded once for both."""
    monkeypatch.chdir(tmp_path)
    asked = questions(workplace / "data", 100)
    first: dict[Path, list[dict[str, Any]]] = {}
    for video, text, answer in asked:
        first.setdefault(video, []).append({"clip": str(video), "task": {"ask": f"<video>{text}", "label": answer}})
    rows = [row for pair in first.values() if len(pair) == 2 for row in pair][:ROWS]
    assert len(rows) == ROWS
    Path("set.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = {"prompt": "task.ask", "answer": "task.label", "videos": "clip"}
    Path("job.yaml").write_text(job(document, Path("set.jsonl"), columns=columns, groupByMedia=True))
    with scripted() as rollout:
        train(load_job(Path("job.yaml"), context="train", ranks=1), "hand")
    asserted_to_have_trained(read_run(Path("runs/hand"), ""))
    for batch in rollout.batches:
        keys = [prompt.media[0].key for prompt in batch]
        assert sorted(keys.count(key) for key in set(keys)) == [2, 2]
