"""Pages refer to what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.plan_example import written

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\]\(([^)\s#]+)[^)]*\)")
MAKE = re.compile(r"\bmake ([a-z-]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"`[^`\n]*`", "", page.read_text())  # code may look like a link
    links = [link for link in LINK.findall(text) if not link.startswith("https://")]
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    code = re.findall(r"`make [^`\n]*`|^make .*$", page.read_text(), flags=re.MULTILINE)
    assert {target for line in code for target in MAKE.findall(line.partition("#")[0])} <= targets


def test_every_page_is_linked_from_the_readme() -> None:
    readme = PAGES[0].read_text()
    assert [page.name for page in PAGES[1:] if f"docs/{page.name}" not in readme] == []


def test_the_plans_page_shows_what_the_command_prints() -> None:
    page = ROOT / "docs" / "plan.md"
    assert written(page.read_text()) == page.read_text(), "make docs"
