"""``python -m rollplex.bench.table JSON FILE``: put a benchmark's table between the markers of a page."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rollplex.bench.report import as_markdown

BEGIN, END = "<!-- bench -->", "<!-- /bench -->"


def with_table(page: str, report: dict[str, object]) -> str:
    """The page with everything between its two markers replaced; raises ValueError where one is missing."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks {BEGIN} or {END}")
    return f"{before}{BEGIN}\n{as_markdown(report)}{END}{after}"


def main(report: str, page: str) -> None:
    path = Path(page)
    path.write_text(with_table(path.read_text(), json.loads(Path(report).read_text())))


if __name__ == "__main__":
    main(*sys.argv[1:])
