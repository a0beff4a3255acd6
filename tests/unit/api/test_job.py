"""The models: the whole job of the design, defaults, immutability, and what a Kubernetes schema needs of them."""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rollplex.api import JobError, OptimizerSpec, RollplexJob, load_job, resolved_yaml
from rollplex.api.base import WayOut, quantity_bytes
from rollplex.api.fields import children, every_path, section_of

WHOLE = Path(__file__).parent / "data" / "clevrer-32b.yaml"
SMALLEST = """
apiVersion: rollplex.io/v1alpha1
kind: RollplexJob
metadata: {name: small}
spec: {model: {path: m}, data: {train: t.jsonl}, reward: [{name: exact}], training: {steps: 3}}
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALLEST)
    return path


def test_whole_job_is_valid_on_the_cluster() -> None:
    job = load_job(WHOLE, context="cluster")
    spec = job.spec
    assert (job.metadata.name, job.metadata.namespace) == ("clevrer-32b", "research")
    assert spec.data.video.max_pixels_per_frame == 200704
    assert [reward.weight for reward in spec.reward] == [1.0, 0.5]
    assert spec.training.optimizer.betas == (0.9, 0.95)
    assert (spec.schedule.decode_sms, spec.schedule.run_ahead) == ("auto", "auto")
    assert spec.memory.budget_bytes == 76 * 2**30
    assert spec.env_from[0].secret_ref is not None
    assert spec.run_policy.ttl_seconds_after_finished == 86400


def test_whole_job_names_every_section_of_the_spec() -> None:
    assert set(yaml.safe_load(WHOLE.read_text())["spec"]) == set(children(type(load_job(WHOLE).spec)))


def test_smallest_job_has_defaults_for_the_rest(small: Path) -> None:
    spec = load_job(small).spec
    assert (spec.algorithm.name, spec.algorithm.group_size, spec.schedule.mode) == ("grpo", 8, "stream")
    assert (spec.precision, spec.rollout.stall_seconds, spec.data.decode_timeout_seconds) == ("auto", 300, 20)
    assert (spec.data.workers, spec.evaluation, spec.memory.budget_bytes) == ("auto", None, None)


def test_empty_values_are_defaults(tmp_path: Path, small: Path) -> None:
    path = tmp_path / "empty.yaml"
    path.write_text(
        SMALLEST.replace("training: {steps: 3}", "training: {steps: 3, optimizer: }, memory: , nodes: null")
    )
    assert load_job(path) == load_job(small)


@pytest.mark.parametrize("source", [WHOLE, None], ids=["whole", "smallest"])
def test_resolved_job_is_the_same_job(source: Path | None, small: Path, tmp_path: Path) -> None:
    job = load_job(source or small)
    again = tmp_path / "resolved.yaml"
    again.write_text(resolved_yaml(job))
    assert load_job(again) == job
    assert resolved_yaml(load_job(again)) == again.read_text()


def test_resolved_job_trains_where_the_job_did(small: Path, tmp_path: Path) -> None:
    again = tmp_path / "resolved.yaml"
    again.write_text(resolved_yaml(load_job(small, ["evaluation.data=v.jsonl"], context="train")))
    load_job(again, context="train")
    resolved = yaml.safe_load(again.read_text())["spec"]
    assert (resolved["evaluation"]["data"], resolved["evaluation"]["everySteps"]) == ("v.jsonl", 20)
    assert resolved["training"]["optimizer"]["learningRate"] == 1e-6
    assert resolved["checkpoint"] == {"everySteps": 20, "keepLast": 3, "keepBest": 1}


def test_jobs_do_not_change(small: Path) -> None:
    job = load_job(small)
    with pytest.raises(ValidationError, match="frozen"):
        job.spec.training.steps = 5  # type: ignore[misc]
    assert isinstance(job.spec.reward, tuple)


def test_code_builds_sections_by_their_python_names() -> None:
    assert OptimizerSpec(learning_rate=0.5, warmup_steps=0) == OptimizerSpec.model_validate(
        {"learningRate": 0.5, "warmupSteps": 0}
    )


def test_a_file_has_only_one_spelling(small: Path) -> None:
    with pytest.raises(JobError, match=r"spec.schedule.decode_sms: unknown key; did you mean decodeSMs\?"):
        load_job(small, ["schedule.decode_sms=auto"])


@given(
    whole=st.integers(1, 10**15),
    digits=st.integers(0, 6),
    unit=st.sampled_from(["", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"]),
)
def test_quantity_bytes_is_exact(whole: int, digits: int, unit: str) -> None:
    number = Fraction(whole, 10**digits)
    text = f"{whole // 10**digits}" + (f".{whole % 10**digits:0{digits}d}" if digits else "")
    factor = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}.get(unit) or 1024 ** (1 + "KMGT".index(unit[0]))
    assert quantity_bytes(text + unit) == int(number * factor)


@pytest.mark.parametrize("text", ["", "Gi", "76 Gi", "76GB", "-1Gi", "1e3"])
def test_quantity_bytes_refuses_other_text(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity such as 76Gi"):
        quantity_bytes(text)


def schemas(schema: Any) -> Iterator[dict[str, Any]]:
    """A schema and everything below it."""
    if isinstance(schema, dict):
        yield schema
        for value in schema.values():
            yield from schemas(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from schemas(value)


def test_schema_uses_only_what_a_structural_schema_can_say() -> None:
    for schema in schemas(RollplexJob.model_json_schema(by_alias=True)):
        assert "prefixItems" not in schema
        assert "oneOf" not in schema
        if "anyOf" in schema:  # a value that may be left out
            assert [option.get("type") for option in schema["anyOf"]].count("null") == 1
            assert len(schema["anyOf"]) == 2


def test_every_field_is_described_and_bounded() -> None:
    for path, field in every_path(RollplexJob):
        assert (field.description or "").endswith("."), path
        if section_of(field.annotation) is None and field.is_required():
            assert field.examples, path
    for schema in schemas(RollplexJob.model_json_schema(by_alias=True)):
        if schema.get("type") in ("integer", "number"):
            assert {"maximum", "exclusiveMaximum"} & set(schema), schema
            assert {"minimum", "exclusiveMinimum"} & set(schema), schema
        if schema.get("type") == "string":
            assert {"maxLength", "enum", "const"} & set(schema) or "title" not in schema, schema
        if schema.get("type") == "array":
            assert "maxItems" in schema, schema


def test_every_pattern_has_a_way_out() -> None:
    # "is malformed" alone would leave a user with a regular expression
    def annotations(field: Any) -> str:
        return repr(field.metadata) + repr(field.annotation)

    patterned = [(path, field) for path, field in every_path(RollplexJob) if "pattern=" in annotations(field)]
    assert len(patterned) > 5
    for path, field in patterned:
        assert WayOut.__name__ in annotations(field), path
