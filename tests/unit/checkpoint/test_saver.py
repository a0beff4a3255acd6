"""When a checkpoint is due, and that training waits for the copy only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch

from rollplex.api.output import CheckpointSpec
from rollplex.checkpoint.saver import Committed, SaveError, Saver
from rollplex.checkpoint.store import Checkpoint, CheckpointStore
from rollplex.weights.shards import Entry


class Slow(CheckpointStore):
    """Writes once it is let."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.go = Event()

    def write(
        self, step: int, tensors: Mapping[str, Entry], state: Mapping[str, Any], *rest: Any, **named: Any
    ) -> Checkpoint:
        assert self.go.wait(20)
        return super().write(step, tensors, state, *rest, **named)


def saver(
    store: CheckpointStore,
    weight: torch.Tensor | None = None,
    last: int = 100,
    measured: str | None = "a",
    **spec: Any,
) -> Saver:
    weight = torch.zeros(2) if weight is None else weight
    return Saver(store, CheckpointSpec(**spec), last, {"job": {"kind": "RollplexJob"}}, lambda: {"w": weight}, measured)


def test_due_steps() -> None:
    ours = saver(CheckpointStore(Path("nowhere")), last=7, every_steps=3)
    assert [step for step in range(1, 8) if ours.due(Committed(step))] == [3, 6, 7]


def test_a_new_best_is_due_and_kept(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    ours = saver(store, every_steps=10, keep_last=1, keep_best=1)
    saved = []
    for step, score in enumerate([0.2, None, 0.1, 0.6, 0.6, 0.5], start=1):
        at = Committed(step, score=score)
        if ours.due(at):
            ours.save(at)
            saved.append(step)
    assert saved == [1, 4]
    assert store.steps() == [4]
    again = saver(store, every_steps=10)
    assert not again.due(Committed(7, score=0.6))
    assert again.due(Committed(7, score=0.7))
    assert not saver(store, every_steps=10, keep_best=0).due(Committed(7, score=0.7))


def test_a_changed_evaluation_has_a_best_of_its_own(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    before = saver(store, every_steps=10, keep_last=1, keep_best=1, measured="easy")
    before.save(Committed(1, score=0.9))
    changed = saver(store, every_steps=2, keep_last=1, keep_best=1, measured="hard")
    changed.save(Committed(2))
    assert store.steps() == [1, 2]  # nothing is better by the new measure yet
    assert changed.due(Committed(3, score=0.3))
    changed.save(Committed(3, score=0.3))
    changed.save(Committed(4, score=0.2))
    assert store.steps() == [3, 4]
    assert not saver(store, every_steps=10, measured="hard").due(Committed(5, score=0.3))
    assert saver(store, every_steps=10, measured="other").due(Committed(5, score=0.1))


def test_a_score_of_before_fingerprints_is_not_compared(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    saver(store).save(Committed(1, score=0.9))
    manifest = store.path(1) / "manifest.json"
    document = json.loads(manifest.read_text())
    assert document.pop("measured") == "a"
    manifest.write_text(json.dumps(document))
    assert store.read(1).measured is None
    assert saver(store, every_steps=10).due(Committed(2, score=0.1))


def test_training_goes_on_while_the_disk_is_slow(tmp_path: Path) -> None:
    weight = torch.ones(3)
    store = Slow(tmp_path)
    ours = saver(store, weight)
    ours.copy(Committed(1, position=4))
    ours.start()
    weight.fill_(2.0)  # the next step trains on
    assert store.steps() == []
    store.go.set()
    ours.copy(Committed(2, position=8))  # waits for the first
    assert store.steps() == [1]
    ours.start()
    ours.wait()
    read = {step: dict(store.read(step).tensors())["w"].tolist() for step in store.steps()}
    assert read == {1: [1.0] * 3, 2: [2.0] * 3}
    state = store.read(2).state()
    assert (state["step"], state["position"], state["job"]) == (2, 8, {"kind": "RollplexJob"})


def test_saving_twice_at_one_step_writes_once(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    ours = saver(store)
    ours.save(Committed())
    assert store.steps() == []
    ours.save(Committed(3))
    ours.save(Committed(3))
    saver(store).save(Committed(3))
    assert store.steps() == [3]


def test_failed_save_is_told_at_the_next_one(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file, where the folder should be")
    ours = saver(CheckpointStore(tmp_path / "checkpoints"))
    ours.copy(Committed(20))
    ours.start()
    with pytest.raises(SaveError, match=r"the checkpoint of step 20 could not be written to .*checkpoints: .*exists"):
        ours.copy(Committed(40))
    ours.wait()  # told once
