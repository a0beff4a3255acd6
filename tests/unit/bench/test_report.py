from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rollplex.bench.report import Rounds, build_report, write_report
from rollplex.bench.table import with_table


@pytest.fixture
def report() -> dict[str, Any]:
    tokens = {"prefix": 10, "suffix": 20, "vision": 5, "decode": 20}
    live = {
        "per-sample": Rounds([6.0, 5.0, 4.0], [0.0] * 3, [5.0] * 3, [0.0] * 3, {**tokens, "prefix": 0, "suffix": 1200}),
        "serial": Rounds([3.0, 2.5, 2.0], [0.0] * 3, [2.0] * 3, [None, None, None], tokens),
        "stream": Rounds([2.0, 2.0, 9.0], [1.0, 1.5, 2.0], [0.5] * 3, [None, 0.25, 0.75], tokens),
    }
    replayed = {"serial": Rounds([1.0], [0.0], [1.0], [0.0], tokens)}
    return build_report(live, replayed, {"job": "small"})


def test_report_gives_medians_and_spread(report: dict[str, Any]) -> None:
    assert report["modes"]["stream"] == {
        "seconds": 2.0,
        "spread": [2.0, 9.0],
        "tokens": {"prefix": 10, "suffix": 20, "vision": 5, "decode": 20},
        "hidden_seconds": 1.5,
        "saved_seconds": 0.5,
        "exposed_seconds": 0.5,
    }
    assert report["modes"]["serial"]["saved_seconds"] is None


def test_ratio_is_seconds_of_the_first_over_the_second(report: dict[str, Any]) -> None:
    assert report["ratios"]["per-sample/stream"] == 2.5
    assert report["ratios"]["stream/per-sample"] == 0.4
    assert report["ratios"]["serial/stream"] == 1.25
    assert report["replay"]["ratios"] == {}


def test_report_says_where_and_when(report: dict[str, Any], tmp_path: Path) -> None:
    write_report(report, tmp_path / "new" / "report.json")
    read = json.loads((tmp_path / "new" / "report.json").read_text())
    assert read.keys() == {"card", "date", "versions", "work", "modes", "ratios", "replay"}
    assert "torch" in read["versions"]
    assert "core" in read["card"] or "NVIDIA" in read["card"]


def test_table_goes_between_the_markers_and_nowhere_else(report: dict[str, Any]) -> None:
    page = "before\n<!-- bench -->\nold numbers\n<!-- /bench -->\nafter\n"
    once = with_table(page, report)
    assert once.startswith("before\n<!-- bench -->\n| mode |")
    assert once.endswith("<!-- /bench -->\nafter\n")
    assert "old numbers" not in once
    assert "| stream | 2.00 | 2.00-9.00 | 1.50 | 0.50 | 0.50 | 10 | 20 | 5 | 20 | 2.50x |" in once
    assert with_table(once, report) == once


def test_page_without_markers_is_refused(report: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="lacks"):
        with_table("no markers", report)
