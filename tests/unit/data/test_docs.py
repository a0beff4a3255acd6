"""The rows in docs/data.md are rows of the formats that they stand under."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rollplex.data.columns import PRESETS
from rollplex.data.dataset import read_rows

PAGE = (Path(__file__).parents[3] / "docs/data.md").read_text()


@pytest.mark.parametrize(
    ("heading", "modality", "answer"),
    [("rollplex", "video", "red"), ("verl", "image", "48"), ("ROLL", "text", "3"), ("EasyR1", "image", "48")],
)
def test_documented_row_is_read(tmp_path: Path, heading: str, modality: str, answer: str) -> None:
    section = PAGE.partition(f"### {heading}\n")[2].partition("\n###")[0]
    found = re.search(r"```json\n(.*?)```", section, re.DOTALL)
    assert found is not None
    for name in ("videos/0001.mp4", "images/0.png"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    (tmp_path / "rows.json").write_text(f"[{found[1]}]")
    (row,) = read_rows(tmp_path / "rows.json", "spec.data.train", PRESETS[heading.lower()])
    assert (row.modality, row.answer) == (modality, answer)
