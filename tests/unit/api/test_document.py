"""YAML text and overrides, before any model sees them."""

from pathlib import Path

import pytest

from rollplex.api import JobError, load_job
from rollplex.api.document import read_yaml, with_overrides, with_value, without

JOB = """\
apiVersion: rollplex.io/v1alpha1
kind: RollplexJob
metadata: {name: small}
spec:
  model: {path: m}
  data: {train: t.jsonl}
  reward: [{name: exact}, {name: exact, weight: 2}]
  training: {steps: 3}
"""


@pytest.mark.parametrize(
    ("text", "value"), [("1e-6", 1e-6), ("1E3", 1e3), ("-2.5e2", -250.0), ("1.0e-6", 1e-6), ("3", 3)]
)
def test_yaml_numbers_are_numbers(text: str, value: float) -> None:
    assert read_yaml(text, "x") == value
    assert type(read_yaml(text, "x")) is type(value)


@pytest.mark.parametrize("text", ["1e-6x", "e6", "0x", "1.2.3"])
def test_yaml_other_words_stay_text(text: str) -> None:
    assert read_yaml(text, "x") == text


def test_yaml_keys_given_twice_are_all_named() -> None:
    text = "a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\na: 2\n"
    with pytest.raises(JobError) as caught:
        read_yaml(text, "job.yaml")
    assert [str(fault) for fault in caught.value.faults] == [
        "job.yaml:5: c is given twice, first in line 3; remove one",
        "job.yaml:6: a is given twice, first in line 1; remove one",
    ]


def test_yaml_merge_keys_are_not_twice() -> None:
    assert read_yaml("a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\n", "f")["b"] == {"x": 3, "y": 2}


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (None, "there is no such file"),
        (b"a: [1\nb: 2", "not YAML"),
        (b"a: 1\n---\nb: 1\n", "holds more than one document"),
        (b"", "is not a mapping with apiVersion, kind, metadata and spec"),
        (b"- 1\n", "is not a mapping"),
        (b"\xff\xfe\xfa", "not YAML"),
        (b"a: \x00", "not YAML"),
    ],
)
def test_file_that_is_no_job_is_one_fault(content: bytes | None, fault: str, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(JobError) as caught:
        load_job(path)
    [only] = caught.value.faults
    assert only.path.startswith(str(path))
    assert fault in only.message
    assert "\n" not in only.message


def test_folder_is_no_job(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="cannot be read: Is a directory"):
        load_job(tmp_path)


def test_overrides_reach_everywhere(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    overrides = [
        "training.steps=20",
        "spec.training.seed=7",  # as a fault's path writes it
        "training.optimizer.learningRate=1e-4",
        "reward.1.weight=0.5",
        "evaluation={data: v.jsonl, samples: 2}",
        "evaluation.everySteps=5",
        "rollout.stop=[' a', 7]",
        "data.train=a=b.jsonl",
        "model.reference=",
    ]
    spec = load_job(path, overrides).spec
    assert (spec.training.steps, spec.training.seed, spec.training.optimizer.learning_rate) == (20, 7, 1e-4)
    assert [reward.weight for reward in spec.reward] == [1.0, 0.5]
    assert spec.evaluation is not None
    assert (spec.evaluation.samples, spec.evaluation.every_steps) == (2, 5)
    assert spec.rollout.stop == (" a", 7)
    assert (spec.data.train, spec.model.reference) == ("a=b.jsonl", "initial")


def test_overrides_that_cannot_be_put_are_all_named(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    with pytest.raises(JobError) as caught:
        load_job(
            path, ["training.steps", "=3", "reward.2.weight=1", "reward.x=1", "model.path.x=1", "training.steps=[1"]
        )
    assert [str(fault) for fault in caught.value.faults] == [
        "--set training.steps: is not KEY=VALUE, such as training.steps=20",
        "--set =3: is not KEY=VALUE, such as training.steps=20",
        "--set reward.2.weight=1: 2 is no item of a list of 2 (they count from 0)",
        "--set reward.x=1: x is no item of a list of 2 (they count from 0)",
        '--set model.path.x=1: x cannot be set in "m", which is neither a mapping nor a list',
        "--set training.steps=[1: not YAML: expected ',' or ']', but got '<stream end>'",
    ]


def test_overrides_leave_the_document_alone() -> None:
    document = {"spec": {"a": [{"b": 1}]}}
    assert with_overrides(document, ["a.0.b=2"]) == {"spec": {"a": [{"b": 2}]}}
    assert document == {"spec": {"a": [{"b": 1}]}}


def test_override_does_not_leak_through_a_yaml_anchor(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(JOB + "  parallelism: {train: &same {tensor: 2}, rollout: *same}\n")
    spec = load_job(path, ["parallelism.train.tensor=4"]).spec
    assert (spec.parallelism.train.tensor, spec.parallelism.rollout.tensor) == (4, 2)


def test_without_undoes_with_value() -> None:
    document = {"a": {"b": [1, {"c": 2}]}}
    assert without(with_value(document, ["a", "d", "e"], 3), ["a", "d"]) == document
    assert without(document, ["a", "b", 1, "c"]) == {"a": {"b": [1, {}]}}
    assert without(document, ["a", "x", "y"]) == document
