"""The CRD is what the models say, and says it in full."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollplex.api import RollplexJob
from rollplex.api.base import Section
from rollplex.api.cel import CEL, IN_SCHEMA
from rollplex.api.cel_text import Cel, say
from rollplex.api.cel_update import update_rules
from rollplex.api.cluster import MUTABLE, RunPolicySpec
from rollplex.api.crd import crd_yaml, definition, schema
from rollplex.api.fields import children, every_path, section_of
from rollplex.api.job import JobSpec
from rollplex.api.rules import RULES
from rollplex.api.status import JobStatus

FILE = Path(__file__).parents[3] / "crds" / "rollplexjobs.yaml"
LARGEST = 256 * 1024  # annotation of kubectl apply
UNTYPED = {"x-kubernetes-preserve-unknown-fields": True, "nullable": True}


def nodes(part: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """A schema and all below it, with their paths."""
    yield path, part
    for name, inner in part.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{name}" if path else name)
    if "items" in part:
        yield from nodes(part["items"], f"{path}[]")


NODES = dict(nodes(schema()))


def at(path: str) -> dict[str, Any]:
    """The node of a path as :func:`every_path` has it, without marks of lists."""
    return next(node for place, node in NODES.items() if place.replace("[]", "") == path and "items" not in node)


def test_crd_has_not_drifted() -> None:
    assert FILE.read_text() == crd_yaml(), "run: make crds"


def test_crd_fits_an_annotation() -> None:
    assert len(crd_yaml().encode()) < LARGEST


def test_every_field_is_in_the_schema() -> None:
    places = {path.replace("[]", "") for path in NODES}
    for path, _ in every_path(RollplexJob):
        if not path.startswith("metadata."):
            assert path in places, path
    assert {f"status.{path}" for path, _ in every_path(JobStatus)} <= places


def test_every_field_is_described() -> None:
    for path, node in NODES.items():
        if path and not path.endswith("[]") and node != UNTYPED and path != "metadata":
            assert node.get("description"), path


def test_every_text_and_list_of_the_spec_is_bounded() -> None:
    # the API server refuses rules whose cost it cannot bound
    for path, node in NODES.items():
        if path.startswith("spec.") and node.get("type") == "string":
            assert "enum" in node or "maxLength" in node, path
        if path.startswith("spec.") and node.get("type") == "array":
            assert "maxItems" in node, path


def test_numbers_of_the_spec_are_bounded() -> None:
    for path, node in NODES.items():
        if path.startswith("spec.") and node.get("type") in ("integer", "number"):
            rules = " ".join(rule["rule"] for rule in node.get("x-kubernetes-validations", ()))
            assert "minimum" in node or "self >=" in rules, path
            assert "maximum" in node, path


def test_defaults_are_those_of_the_models() -> None:
    for path, field in every_path(RollplexJob):
        if not path.startswith("spec.") or field.is_required():
            continue
        node = NODES.get(path) or at(path)
        default = field.get_default(call_default_factory=True, validated_data={})
        if default is None:
            assert "default" not in node, path
        elif isinstance(default, Section):
            assert type(default).model_validate(node["default"], by_alias=True) == default
        else:
            assert node["default"] == (list(default) if isinstance(default, tuple) else default), path


def test_required_is_what_has_no_default() -> None:
    for path, field in every_path(RollplexJob):
        owner, _, name = path.rpartition(".")
        if path.startswith("spec.") and section_of(field.annotation) is None:
            assert (name in at(owner).get("required", ())) == field.is_required(), path


def test_every_rule_is_mirrored_once() -> None:
    assert [rule.check for rule in RULES if (rule.check in CEL) + (rule.check in IN_SCHEMA) != 1] == []
    assert set(CEL) | set(IN_SCHEMA) == {rule.check for rule in RULES}


@pytest.mark.parametrize("cel", [cel for mirrored in CEL.values() for cel in mirrored], ids=lambda cel: cel.field)
def test_rule_stands_where_its_field_is(cel: Cel) -> None:
    assert f"{cel.at}{cel.field}" in NODES


def test_every_field_is_mutable_or_guarded() -> None:
    guarded = {cel.field.removeprefix(".spec.") for cel in update_rules()}
    run_policy = {f"runPolicy.{key}" for key in children(RunPolicySpec)}
    assert guarded == set(children(JobSpec)) - {"runPolicy"} | run_policy - {f"runPolicy.{key}" for key in MUTABLE}


def test_refused_change_names_every_field_of_its_section() -> None:
    [training] = [cel.says for cel in update_rules() if cel.field == ".spec.training"]
    for path, field in every_path(RollplexJob):
        if path.startswith("spec.training.") and section_of(field.annotation) is None:
            assert f'", {path.removeprefix("spec.")}"' in training


def test_columns_read_fields_that_exist() -> None:
    [version] = definition()["spec"]["versions"]
    for column in version["additionalPrinterColumns"]:
        path = column["jsonPath"].removeprefix(".")
        if not path.startswith("metadata."):
            assert NODES[path]["type"] == column["type"], column["name"]
    assert [column["name"] for column in version["additionalPrinterColumns"] if column["priority"] == 0] == [
        *("Phase", "Step", "Nodes", "Restarts", "Saved%", "Age")
    ]


def test_say_wants_a_value_for_each_place() -> None:
    assert say('50% of "{}"', "self.x") == '"50%% of \\"%s\\"".format([self.x])'
    with pytest.raises(ValueError, match="2 values"):
        say("{}", "a", "b")
