"""``rollplex bench`` on a small job: equal work in every mode, and what the report says of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.engine.train.conftest import command


@pytest.fixture(scope="module")
def report(workplace: Path, document: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    job = document(evaluation=None, model={"path": "there/is/no/folder"})
    (workplace / "bench.yaml").write_text(yaml.safe_dump(job))
    done = command(
        "bench", "bench.yaml", "--repeat", "2", "--json", "out/bench.json",
        "--random-weights", "qwen2.5-vl-tiny", "--response-tokens", "lognormal:4:0.5",
        cwd=workplace,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert "per-sample/stream: " in done.stdout
    read: dict[str, Any] = json.loads((workplace / "out/bench.json").read_text())
    return read


@pytest.mark.parametrize("part", ["live", "replay"])
def test_every_mode_does_the_same_work(report: dict[str, Any], part: str) -> None:
    modes = report["modes"] if part == "live" else report["replay"]["modes"]
    assert modes.keys() == {"per-sample", "serial", "overlap", "stream"}
    decoded = {name: mode["tokens"]["decode"] for name, mode in modes.items()}
    work = report["work"]
    assert set(decoded.values()) == {round(work["response_tokens"] * work["prompts"] * work["group_size"])}
    shared = modes["serial"]["tokens"]
    assert modes["overlap"]["tokens"] == modes["stream"]["tokens"] == shared
    alone = modes["per-sample"]["tokens"]
    assert alone["prefix"] == 0
    # without sharing each of G samples brings its prompt (all but the last token) along and encodes its video again
    assert alone["suffix"] == shared["suffix"] + work["group_size"] * shared["prefix"]
    assert alone["vision"] >= work["group_size"] * shared["vision"]


def test_only_decoding_modes_hide(report: dict[str, Any]) -> None:
    assert report["modes"]["per-sample"]["hidden_seconds"] == 0.0
    assert report["modes"]["serial"]["hidden_seconds"] == 0.0
    assert report["modes"]["stream"]["hidden_seconds"] > 0.0
    assert report["modes"]["stream"]["saved_seconds"] is not None
    for mode in report["modes"].values():
        low, high = mode["spread"]
        assert low <= mode["seconds"] <= high


def test_report_records_how_the_work_was_fixed(report: dict[str, Any]) -> None:
    assert report["work"]["response_tokens_spec"] == "lognormal:4:0.5"
    assert report["work"]["random_weights"] == "qwen2.5-vl-tiny"
    assert report["ratios"]["per-sample/stream"] == pytest.approx(
        report["modes"]["per-sample"]["seconds"] / report["modes"]["stream"]["seconds"]
    )


@pytest.mark.parametrize("option", ["--random-weights=qwen2.5-vl-3b", "--response-tokens=4"])
def test_train_knows_no_benchmark_options(workplace: Path, option: str) -> None:
    done = command("train", "bench.yaml", option, cwd=workplace)
    assert done.returncode == 2
    assert "No such option" in done.stderr
