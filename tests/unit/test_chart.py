"""The chart by itself: what needs Helm or an API server is in tests/cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "rollplex"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
# parts of a pod that the server checks, and what belongs to a parent chart
OPEN = {".global", ".affinity.nodeAffinity", ".affinity.podAffinity", ".affinity.podAntiAffinity"}


def objects(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object of a schema with its path."""
    if schema.get("type") == "object":
        yield path, schema
    for name, part in schema.get("properties", {}).items():
        yield from objects(part, f"{path}.{name}")
    if "items" in schema:
        yield from objects(schema["items"], f"{path}[]")


def test_crd_is_the_generated_one() -> None:
    generated = (ROOT / "crds" / "rollplexjobs.yaml").read_text()
    assert (CHART / "files" / "rollplexjobs.yaml").read_text() == generated, "make crds writes both"


def test_chart_and_package_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert f'version = "{chart["appVersion"]}"' in (ROOT / "pyproject.toml").read_text()


def test_defaults_satisfy_the_schema() -> None:
    jsonschema.validate(VALUES, SCHEMA)


def test_schema_takes_nothing_unknown_at_any_level() -> None:
    found = dict(objects(SCHEMA))
    # a map of strings or quantities says what its values are; everything else is closed
    open_ones = {path for path, each in found.items() if each.get("additionalProperties", True) is True}
    assert open_ones == OPEN
    assert len(found) > 30


def test_every_value_has_a_default_and_a_line_in_the_readme() -> None:
    assert set(SCHEMA["properties"]) - {"global"} == set(VALUES)
    readme = (CHART / "README.md").read_text()
    assert [name for name in VALUES if f"`{name}" not in readme] == []


@pytest.mark.parametrize(("path", "default"), [("registry", ""), ("tag", ""), ("digest", "")])
def test_images_name_no_registry_and_no_version_by_default(path: str, default: str) -> None:
    assert VALUES["image"][path] == VALUES["trainer"]["image"][path] == default
