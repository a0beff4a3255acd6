"""Going on after a checkpoint."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rollplex.checkpoint.place import Place
from rollplex.checkpoint.saver import Committed
from rollplex.checkpoint.store import CheckpointStore
from rollplex.resume import accept, finished_line
from rollplex.weights.shards import Entry

HEAD = {"job": {"kind": "RollplexJob"}, "contents": {"data": "4 rows, hash ab", "model": "1 weight files, hash cd"}}


def test_state_comes_back_and_what_an_older_checkpoint_lacks_has_its_default(tmp_path: Path) -> None:
    at = Committed(3, position=9, skipped_rows={"too_long": 1}, skipped_ids=["7"], score=0.5)
    later = ("skipped_ids", "unevaluated")
    older = {name: value for name, value in at.as_state().items() if name not in later}
    store = CheckpointStore(tmp_path)
    found = []
    for step, state in ((3, at.as_state()), (4, older)):
        store.write(step, {"w": Entry.of(torch.zeros(1))}, HEAD | json.loads(json.dumps(state)))
        found.append(accept(store.read(step), HEAD, lambda line: None))
    assert found == [at, Committed(3, position=9, skipped_rows={"too_long": 1}, score=0.5)]


def test_an_evaluation_is_missing_until_the_manifest_has_its_score(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    at = Committed(3, skipped_ids=[], unevaluated=True)
    store.write(3, {"w": Entry.of(torch.zeros(1))}, HEAD | json.loads(json.dumps(at.as_state())))
    assert accept(store.read(3), HEAD, lambda line: None) == at
    store.rate(3, 0.25, "how")
    assert accept(store.read(3), HEAD, lambda line: None) == replace(at, score=0.25, unevaluated=False)


@pytest.mark.parametrize(
    ("step", "last", "said"), [(3, 3, "step 3 of 3 is reached"), (4, 3, "it is at step 4, training.steps is 3")]
)
def test_a_finished_run_says_where_it_is(step: int, last: int, said: str) -> None:
    line = finished_line(Place(Path("runs/a"), Path("runs/a/checkpoints")), step, last)
    assert line == f"runs/a: finished, {said}; a larger training.steps goes on, --fresh starts anew"
