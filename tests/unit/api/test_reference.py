"""docs/job.md is what the models say."""

import re
from pathlib import Path

import yaml

from rollplex.api import RollplexJob, job_from
from rollplex.api.fields import every_path, section_of
from rollplex.api.not_yet import NOT_YET
from rollplex.api.reference import reference
from rollplex.api.rules import RULES

PAGE = Path(__file__).parents[3] / "docs" / "job.md"


def test_reference_has_not_drifted() -> None:
    assert PAGE.read_text() == reference(), "run: python -m rollplex.api.reference > docs/job.md"


def test_reference_begins_with_a_job_that_trains() -> None:
    [example] = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    job_from(yaml.safe_load(example), context="train", ranks=1)


def test_reference_has_a_row_for_every_field() -> None:
    rows = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(), re.MULTILINE)
    fields = [path for path, field in every_path(RollplexJob) if section_of(field.annotation) is None]
    for path in fields:
        below_section = path.split(".", 2)[-1] if path.count(".") > 1 else path.split(".")[-1]
        assert below_section in rows or path in ("apiVersion", "kind"), path


def test_reference_marks_what_is_not_there_yet() -> None:
    assert PAGE.read_text().count("**Not yet**") == len(NOT_YET) + 1  # and where the mark is explained


def test_reference_lists_every_rule() -> None:
    fields = {path for path, _ in every_path(RollplexJob)}
    for rule in RULES:
        assert set(rule.reads) <= fields
        assert rule.check.__doc__ is not None
        assert f"| {rule.check.__doc__} |" in PAGE.read_text()
