import json
from pathlib import Path
from typing import SupportsFloat

import numpy as np
import pytest
import torch

from rollplex.telemetry.keys import KEYS, page, row
from rollplex.telemetry.tracker import JsonlTracker

DOCS = Path(__file__).parents[3] / "docs"


def test_keys_page_is_the_committed_one() -> None:
    assert (DOCS / "metrics-jsonl.md").read_text() == page(), (
        "run: python -m rollplex.telemetry.keys > docs/metrics-jsonl.md"
    )


def test_keys_are_unique_and_explained() -> None:
    assert len({key.name for key in KEYS}) == len(KEYS)
    assert all(key.unit and key.help.endswith(".") for key in KEYS)


def test_row_is_in_the_documented_order_whatever_the_order_given() -> None:
    given: dict[str, float | str] = {
        "seconds/step": 1.0,
        "loss": 0.5,
        "schedule/mode": "stream",
        "step": 3,
        "reward/part/iou": 0.5,
        "reward/part/exact#2": 0.0,
        "reward/mean": 0.25,
    }
    parts = ["reward/part/iou", "reward/part/exact#2"]
    assert list(row(given)) == ["step", "reward/mean", *parts, "loss", "seconds/step", "schedule/mode"]


def test_row_turns_array_scalars_into_plain_numbers() -> None:
    given: dict[str, SupportsFloat] = {
        "step": np.int64(3),
        "loss": torch.tensor(0.5),
        "tokens/decode": 7,
        "reward/mean": np.float32(0.25),
    }
    values = row(given)
    assert values == {"step": 3, "reward/mean": 0.25, "loss": 0.5, "tokens/decode": 7}
    assert {type(value) for value in values.values()} == {int, float}


def test_row_leaves_out_what_was_not_measured() -> None:
    assert row({"step": 1, "seconds/saved": None}) == {"step": 1}


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ({"step": 1, "reward/man": 0.0, "los": 1.0}, "metrics los, reward/man: not documented"),
        ({"step": 1, "reward/part/": 0.0, "reward/part": 1.0}, "metrics reward/part, reward/part/: not documented"),
        ({"loss": 1.0}, "no step"),
    ],
)
def test_row_refuses_undocumented_names_and_rows_without_step(metrics: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        row(metrics)


def test_jsonl_tracker_writes_each_step_at_once_and_non_finite_values_as_null(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tracker = JsonlTracker(path)
    tracker.write(1, {"step": 1, "loss": float("nan"), "grad/norm": float("inf"), "schedule/mode": "serial"})
    assert path.read_text() == '{"step": 1, "loss": null, "grad/norm": null, "schedule/mode": "serial"}\n'
    tracker.write(2, {"step": 2, "loss": -0.125})
    assert [json.loads(line) for line in path.read_text().splitlines()][1] == {"step": 2, "loss": -0.125}
    tracker.close()
