"""Going on after a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from rollplex.checkpoint.saver import Committed
from rollplex.checkpoint.store import CheckpointStore
from rollplex.resume import accept
from rollplex.weights.shards import Entry

HEAD = {"job": {"kind": "RollplexJob"}, "contents": {"data": "4 rows, hash ab", "model": "1 weight files, hash cd"}}


def test_state_comes_back_and_what_an_older_checkpoint_lacks_has_its_default(tmp_path: Path) -> None:
    at = Committed(3, position=9, skipped_rows={"too_long": 1}, skipped_ids=["7"], score=0.5)
    older = {name: value for name, value in at.as_state().items() if name != "skipped_ids"}
    store = CheckpointStore(tmp_path)
    found = []
    for step, state in ((3, at.as_state()), (4, older)):
        store.write(step, {"w": Entry.of(torch.zeros(1))}, HEAD | json.loads(json.dumps(state)))
        found.append(accept(store.read(step), HEAD, lambda line: None))
    assert found == [at, Committed(3, position=9, skipped_rows={"too_long": 1}, score=0.5)]
