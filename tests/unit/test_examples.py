"""Every example is a job that can be trained."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollplex.api.load import load_job

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))


def test_examples_are_found() -> None:
    assert {"demo.yaml", "smallest.yaml", "bench-cpu.yaml"} <= {path.name for path in EXAMPLES}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_can_be_trained(path: Path) -> None:
    job = load_job(path, context="train", ranks=1)
    assert job.metadata.name == path.stem


def test_smallest_example_is_small() -> None:
    smallest = next(path for path in EXAMPLES if path.name == "smallest.yaml")
    assert len(smallest.read_text().splitlines()) <= 20
