"""What `make demo` promises, for each of its three seeds."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean

import pytest

from tests.engine.train.conftest import command

JOB = Path(__file__).parents[3] / "examples" / "demo.yaml"
GUESSING = 0.25


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_demo_learns_to_see(tmp_path: Path, seed: int) -> None:
    made = tmp_path / "build" / "demo"
    for arguments in (
        ("data", "shapes", "--out", str(made / "data"), "--videos", "320", "--seed", str(seed)),
        ("data", "model", "--out", str(made / "model"), "--seed", str(seed)),
        ("train", str(JOB), "--set", f"training.seed={seed}"),
    ):
        done = command(*arguments, cwd=tmp_path, timeout=600)
        assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in (tmp_path / "runs/demo/metrics.jsonl").read_text().splitlines()]
    rewards = [row["reward/mean"] for row in rows]
    assert mean(rewards[-5:]) >= mean(rewards[:5]) + 0.2
    assert rows[-1]["eval/reward/mean"] >= GUESSING + 0.2
    assert rows[-1]["eval/blank/reward/mean"] == pytest.approx(GUESSING, abs=0.05)
    assert max(row.get("parity/max", 0.0) for row in rows) <= 1e-4
