"""A changed job: refused with the difference, or gone on with and listed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rollplex.api import JobError, RollplexJob, job_from
from rollplex.api.document import with_overrides
from rollplex.api.fields import every_path
from rollplex.checkpoint import contents
from rollplex.checkpoint.changes import FREE, changes, harmless_changes, is_free
from rollplex.resume import head_of

JOB = {
    "apiVersion": "rollplex.io/v1alpha1",
    "kind": "RollplexJob",
    "metadata": {"name": "small"},
    "spec": {
        "model": {"path": "m"},
        "data": {"train": "t.jsonl"},
        "reward": [{"name": "exact"}, {"python": "r.py:f"}],
        "training": {"steps": 3},
    },
}
SAME = {"data": "4 rows, hash ab", "model": "1 weight files, hash cd"}


def document(*overrides: str) -> dict[str, Any]:
    job = job_from(with_overrides(JOB, overrides))
    dumped: dict[str, Any] = job.model_dump(mode="json", by_alias=True, exclude_none=True)
    return json.loads(json.dumps(dumped))  # type: ignore[no-any-return]


def compared(*overrides: str, now: dict[str, str] = SAME) -> list[str]:
    return [
        str(change) for change in harmless_changes({"job": document(), "contents": SAME}, document(*overrides), now)
    ]


def test_same_job_has_no_changes() -> None:
    assert compared() == []


@pytest.mark.parametrize(
    ("override", "listed"),
    [
        ("training.steps=5", "spec.training.steps: 3 -> 5"),
        ("training.optimizer.learningRate=0.1", "spec.training.optimizer.learningRate: 1e-06 -> 0.1"),
        ("schedule.mode=serial", 'spec.schedule.mode: "stream" -> "serial"'),
        ("evaluation={data: v.jsonl}", 'spec.evaluation.data: not set -> "v.jsonl"'),
        ("tracking.tensorboard=false", "spec.tracking.tensorboard: true -> false"),
        ("reward.1.timeoutSeconds=3", "spec.reward.1.timeoutSeconds: 10.0 -> 3.0"),
        ("data.train=elsewhere.jsonl", 'spec.data.train: "t.jsonl" -> "elsewhere.jsonl"'),
    ],
)
def test_harmless_change_is_listed(override: str, listed: str) -> None:
    assert listed in compared(override)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("training.seed=2", "spec.training.seed: 1 -> 2 since the checkpoint; "),
        ("algorithm.groupSize=4", "spec.algorithm.groupSize: 8 -> 4 since the checkpoint; "),
        ("data.groupByMedia=true", "spec.data.groupByMedia: false -> true since the checkpoint; "),
        ("rollout.stop=[7]", "spec.rollout.stop.0: not set -> 7 since the checkpoint; "),
        ("model.freeze=[vision]", 'spec.model.freeze.0: not set -> "vision" since the checkpoint; '),
        ("precision=bf16", 'spec.precision: "auto" -> "bf16" since the checkpoint; '),
        ("reward.0.weight=2", "spec.reward.0.weight: 1.0 -> 2.0 since the checkpoint; "),
    ],
)
def test_change_that_breaks_the_run_is_refused_with_both_values(override: str, said: str) -> None:
    with pytest.raises(JobError) as caught:
        compared(override, "training.steps=9")
    assert any(str(fault).startswith(said) for fault in caught.value.faults), caught.value
    assert "--fresh" in str(caught.value)
    assert "--name" in str(caught.value)
    assert "spec.training.steps" not in str(caught.value)


def test_changed_contents_are_refused_where_the_path_is_the_same() -> None:
    with pytest.raises(JobError) as caught:
        compared(now={**SAME, "data": "5 rows, hash ef"})
    [fault] = caught.value.faults
    assert fault.path == "spec.data.train"
    assert "4 rows, hash ab -> 5 rows, hash ef" in fault.message


def test_changed_code_of_a_reward_is_listed_and_unknown_code_is_not() -> None:
    saved = {"job": document(), "contents": SAME | {"spec.reward.1.python": "hash ab"}}
    now = SAME | {"spec.reward.1.python": "hash cd"}
    [change] = harmless_changes(saved, document(), now)
    assert str(change) == "spec.reward.1.python: its file had hash ab -> it has hash cd"
    assert harmless_changes(saved, document(), saved["contents"]) == []
    assert harmless_changes({"job": document(), "contents": SAME}, document(), now) == []  # saved before code was noted


def test_head_notes_the_code_of_each_reward_function(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    code = tmp_path / "r.py"
    code.write_text("def f(*_):\n    return 1.0\n")
    job = job_from(with_overrides(JOB, (f"model.path={tmp_path}", f"reward.1.python={code}:f")))
    before = head_of(job, [])
    code.write_text("def f(*_):\n    return 0.0\n")
    [change] = harmless_changes(before, before["job"], head_of(job, [])["contents"])
    assert change.path == "spec.reward.1.python"


def test_every_free_field_exists_and_what_makes_a_batch_is_not_free() -> None:
    known = {path for path, _ in every_path(RollplexJob)}
    assert set(FREE) <= known
    fixed = {path for path in known if not is_free(path)}
    assert {
        "spec.data.train",
        "spec.training.promptsPerStep",
        "spec.algorithm.name",
        "spec.rollout.temperature",
    } <= fixed


def test_changes_of_lists_and_of_what_is_gone() -> None:
    old, new = {"a": [1, 2], "b": {"c": 1}, "d": []}, {"a": [1, 3, 4], "b": {}, "d": []}
    assert [str(change) for change in changes(old, new)] == [
        "a.1: 2 -> 3",
        "a.2: not set -> 4",
        "b: not set -> empty",
        "b.c: 1 -> not set",
    ]


@dataclass(frozen=True)
class File:
    path: str
    cell: None = None


@dataclass(frozen=True)
class Row:
    id: str
    fields: dict[str, Any]
    media: list[File] = field(default_factory=list)


def test_fingerprint_of_rows(tmp_path: Path) -> None:
    video = tmp_path / "a.mp4"
    video.write_bytes(b"1234")
    rows = [Row("a", {"answer": 1, "raw": b"x"}, [File(str(video))]), Row("b", {"answer": 2})]
    first = contents.of_rows(rows)
    assert first.startswith("2 rows, hash ")
    assert contents.of_rows(list(rows)) == first
    assert contents.of_rows(rows[::-1]) != first
    assert contents.of_rows([rows[0], Row("b", {"answer": 3})]) != first
    assert contents.of_rows([Row("a", {"answer": 1, "raw": b"y"}, [File(str(video))]), rows[1]]) != first
    video.write_bytes(b"12345")
    assert contents.of_rows(rows) != first


def test_fingerprint_of_a_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(bytes(1 << 20))
    first = contents.of_folder(tmp_path)
    assert contents.of_folder(tmp_path) == first
    changed = bytearray(1 << 20)
    changed[-1] = 1
    weights.write_bytes(changed)
    assert contents.of_folder(tmp_path) != first
    weights.write_bytes(bytes(1 << 20))
    (tmp_path / "config.json").write_text('{"a": 1}')
    assert contents.of_folder(tmp_path) != first


def test_a_config_that_was_only_written_otherwise_is_the_same_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"hidden_size": 8, "rope": {"theta": 1e6, "kind": "x"}}')
    first = contents.of_folder(tmp_path)
    (tmp_path / "config.json").write_text('{\n  "rope": {"kind": "x", "theta": 1e6},\n  "hidden_size": 8\n}\n')
    assert contents.of_folder(tmp_path) == first
    (tmp_path / "config.json").write_text('{"hidden_size": 8, "rope": {"theta": 1e5, "kind": "x"}}')
    assert contents.of_folder(tmp_path) != first


def measured(*overrides: str, rows: tuple[Row, ...] = (Row("a", {"answer": 1}),)) -> str | None:
    job = job_from(with_overrides(JOB, ("evaluation={data: v.jsonl}", *overrides)))
    return contents.of_measurement(job.spec, rows)


def test_fingerprint_of_a_measurement_without_an_evaluation() -> None:
    assert contents.of_measurement(job_from(JOB).spec, []) is None


@pytest.mark.parametrize(
    "override",
    ["evaluation.samples=9", "rollout.temperature=0.5", "rollout.maxTokens=7", "reward.0.weight=2", "data.video.fps=1"],
)
def test_what_makes_another_score_is_another_measurement(override: str) -> None:
    assert measured(override) != measured()


@pytest.mark.parametrize(
    "override",
    ["evaluation.data=moved.jsonl", "evaluation.everySteps=9", "evaluation.greedy=false", "training.steps=9"],
)
def test_what_leaves_scores_alone_is_the_same_measurement(override: str) -> None:
    assert measured(override) == measured()


def test_measurement_follows_the_rows_and_the_code_of_a_reward(tmp_path: Path) -> None:
    assert measured(rows=(Row("a", {"answer": 2}),)) != measured()
    code = tmp_path / "r.py"
    code.write_text("def f(*_):\n    return 1.0\n")
    first = measured(f"reward.1.python={code}:f")
    assert measured(f"reward.1.python={code}:f") == first
    code.write_text("def f(*_):\n    return 0.0\n")
    assert measured(f"reward.1.python={code}:f") != first
