"""Names that users meet: each is explained in docs/conditions.md, and each is said by some code."""

from __future__ import annotations

import re
from pathlib import Path

from rollplex_operator import names

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "conditions.md").read_text()


def test_conditions_page_explains_every_reason_and_no_other() -> None:
    explained = {
        word for row in re.findall(r"^\| (`.*?`) \|", PAGE, re.MULTILINE) for word in re.findall(r"`(\w+)`", row)
    }
    assert explained == {reason.value for reason in names.Reason}


def test_conditions_page_has_every_condition_and_phase() -> None:
    assert set(re.findall(r"^## (\w+)$", PAGE, re.MULTILINE)) == {condition.value for condition in names.Condition}
    assert all(re.search(rf"^\| [\w, ]*\b{phase.value}\b", PAGE, re.MULTILINE) for phase in names.Phase)


def test_every_reason_is_said_by_the_operator() -> None:
    sources = (ROOT / "operator" / "rollplex_operator").rglob("*.py")
    said = {
        name
        for source in sources
        if source.name != "names.py"
        for name in re.findall(r"Reason\.([A-Z_]+)", source.read_text())
    }
    assert said == {reason.name for reason in names.Reason}
