"""A small job on real videos, trained once by the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from rollplex.data.shapes import render
from rollplex.data.tiny_model import make

STEPS = 3


@dataclass
class Run:
    """A finished run of the command line, and what it printed."""

    folder: Path
    output: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    errors: str = ""

    @property
    def rollouts(self) -> Path:
        return self.folder / "rollouts"


@pytest.fixture(scope="session")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, a model and a job that names them by relative paths."""
    place = tmp_path_factory.mktemp("train")
    render(place / "data", 20, ["colour", "direction"], seed=3)
    make(place / "model", seed=3, kinds=("colour", "direction"))
    return place


@pytest.fixture(scope="session")
def document(workplace: Path) -> Callable[..., dict[str, Any]]:
    """The job as a document; keyword arguments replace whole sections of its spec."""

    def build(**sections: Any) -> dict[str, Any]:
        spec: dict[str, Any] = {
            "model": {"path": str(workplace / "model")},
            "data": {"train": str(workplace / "data/train.jsonl"), "maxPromptTokens": 256},
            "reward": [{"name": "exact"}],
            "algorithm": {"groupSize": 4, "kl": {"coefficient": 0.01}},
            "rollout": {"maxTokens": 6, "parityEverySteps": 1},
            "training": {
                "promptsPerStep": 4,
                "steps": STEPS,
                "seed": 5,
                "optimizer": {"learningRate": 1e-3, "warmupSteps": 0},
            },
            "schedule": {"deterministic": True},
            "evaluation": {
                "data": str(workplace / "data/val.jsonl"),
                "everySteps": 2,
                "samples": 2,
                "blankFrames": True,
            },
        }
        return {
            "apiVersion": "rollplex.io/v1alpha1",
            "kind": "RollplexJob",
            "metadata": {"name": "small"},
            "spec": spec | sections,
        }

    return build


def command(*arguments: str, cwd: Path, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    """Run the installed command line in a folder."""
    rollplex = Path(sys.executable).with_name("rollplex")
    return subprocess.run([rollplex, *arguments], cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False)


def read_run(folder: Path, output: str) -> Run:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return Run(folder, output, [json.loads(line) for line in lines])


@pytest.fixture(scope="session")
def trained(workplace: Path, document: Callable[..., dict[str, Any]]) -> Run:
    """Three live steps under ``stream``, by ``rollplex train``, with every tracker."""
    tracking = {"wandb": {"project": "tests", "mode": "offline"}}
    (workplace / "job.yaml").write_text(yaml.safe_dump(document(tracking=tracking)))
    done = command("train", "job.yaml", "--name", "live", cwd=workplace)
    assert done.returncode == 0, done.stderr[-2000:]
    run = read_run(workplace / "runs/live", done.stdout)
    run.errors = done.stderr
    return run
