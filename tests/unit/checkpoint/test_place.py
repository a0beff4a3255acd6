"""Where runs and their checkpoints lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollplex.api import JobError
from rollplex.api.job import JobSpec
from rollplex.checkpoint.place import Place
from rollplex.checkpoint.store import CheckpointStore


def spec(**checkpoint: str) -> JobSpec:
    return JobSpec.model_validate(
        {
            "model": {"path": "m"},
            "data": {"train": "t.jsonl"},
            "reward": [{"name": "exact"}],
            "training": {"steps": 3},
            "checkpoint": checkpoint,
        }
    )


def test_run_and_checkpoints_of_a_job() -> None:
    assert Place.of_job(spec(), "demo") == Place(Path("runs/demo"), Path("runs/demo/checkpoints"))
    assert Place.of_job(spec(path="/kept/a"), "demo") == Place(Path("/kept/a/run"), Path("/kept/a"))


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", ".lock"])
def test_names_that_are_no_folder_are_refused(name: str) -> None:
    with pytest.raises(JobError, match=r"--name: .* is no name of a folder"):
        Place.of_job(spec(), name)


def test_run_is_found_by_name_by_folder_and_by_checkpoint_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    CheckpointStore(Path("runs/demo/checkpoints")).write(1, {}, {})
    CheckpointStore(Path("kept")).write(1, {}, {})
    Path("kept/run").mkdir()
    inside = Place(Path("runs/demo"), Path("runs/demo/checkpoints"))
    assert Place.of_run("demo") == Place.of_run("runs/demo") == inside
    assert Place.of_run("kept") == Place.of_run("kept/run") == Place(Path("kept/run"), Path("kept"))
    with pytest.raises(JobError, match=r"RUN: runs/nothing is no folder; runs here: demo"):
        Place.of_run("nothing")


def test_a_folder_that_is_no_run_does_not_hide_the_run_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("demo").mkdir()
    with pytest.raises(JobError, match=r"RUN: demo has no checkpoint"):
        Place.of_run("demo")
    CheckpointStore(Path("runs/demo/checkpoints")).write(1, {}, {})
    assert Place.of_run("demo") == Place(Path("runs/demo"), Path("runs/demo/checkpoints"))
    Path("runs/new").mkdir()
    with pytest.raises(JobError, match=r"RUN: runs/new has no checkpoint"):
        Place.of_run("new")
