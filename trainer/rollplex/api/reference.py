"""Writes the reference of a job from its models: ``python -m rollplex.api.reference > docs/job.md``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any, get_origin

from rollplex.api.base import Section
from rollplex.api.fields import children, section_of
from rollplex.api.job import JobSpec, Metadata
from rollplex.api.not_yet import NOT_YET
from rollplex.api.reward import OPTIONS
from rollplex.api.rollout import REFUSED
from rollplex.api.rules import RULES

INTRO = """\
# The job

<!-- Written by `python -m rollplex.api.reference > docs/job.md`; a test fails where it differs. -->

A RollplexJob is one YAML file for `rollplex train` and for `kubectl apply`. Almost everything has a default; this is a
whole job:

```yaml
apiVersion: rollplex.io/v1alpha1
kind: RollplexJob
metadata: {name: colours}
spec:
  model: {path: runs/model}
  data: {train: runs/data/train.jsonl}
  reward: [{name: exact}]
  training: {steps: 100}
```

- `rollplex validate JOB` prints every fault with its path, one a line, and exits with 2. `--cluster` also checks what
  becomes of the job in pods; `--ranks N` checks the arithmetic of N ranks.
- `--set training.steps=20` overrides a field below `spec` (values are YAML, `reward.0.weight=2` reaches into a list, an
  empty value means the default) and may be given again and again.
- Unknown keys are faults. Relative paths are relative to the current directory, not to the job file.
- A run keeps the whole job with its defaults in its folder; that file is a job again.
- **Not yet** marks what the format has and `rollplex train` refuses until a later version.
"""

_SCOPES = {"job": "always", "ranks": "where the number of ranks is known", "cluster": "on the cluster"}
_TYPES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "object": "mapping",
}


def reference() -> str:
    """The whole page, as Markdown."""
    lines = [INTRO, "## metadata", "", *_table(Metadata, "metadata.")]
    plain: list[str] = []
    for alias, field in children(JobSpec).items():
        inner = section_of(field.annotation)
        if inner is None:
            plain.append(_row(JobSpec, alias, "spec.", alias))
            continue
        note = "A list. " if get_origin(field.annotation) is tuple else ""
        note += "Required." if field.is_required() else "Optional."
        lines += ["", f"## spec.{alias}", "", f"{field.description} {note}", "", *_table(inner, f"spec.{alias}.")]
        if alias == "reward":
            lines += _reward_options()
    lines += ["", "## Directly below spec", "", *_HEAD, *plain]
    lines += ["", "## Refused in spec.rollout", "", "| key | why |", "| --- | --- |"]
    for why in dict.fromkeys(REFUSED.values()):
        lines.append(f"| {', '.join(f'`{key}`' for key, reason in REFUSED.items() if reason == why)} | {why} |")
    lines += ["", "## Rules between fields", "", "| rule | checked |", "| --- | --- |"]
    lines += [f"| {rule.check.__doc__} | {_SCOPES[rule.scope]} |" for rule in RULES]
    return "\n".join(lines) + "\n"


def _reward_options() -> Iterator[str]:
    """A table of options for each named verifier that has some."""
    for name, section in OPTIONS.items():
        if children(section):
            yield from ("", f"Options of `{name}`:", "", *_table(section, ""))


_HEAD = ("| field | type | default | bounds | meaning |", "| --- | --- | --- | --- | --- |")


def _table(section: type[Section], path: str) -> list[str]:
    return [*_HEAD, *_rows(section, path, "")]


def _rows(section: type[Section], path: str, prefix: str) -> Iterator[str]:
    """Rows of a section, those of nested ones among them with dotted names."""
    for alias, field in children(section).items():
        inner = section_of(field.annotation)
        if inner is None:
            yield _row(section, alias, path, prefix + alias)
        else:
            if not field.is_required() and field.default is None:
                yield f"| `{prefix}{alias}` | mapping | none | | {_meaning(section, alias, path)} |"
            yield from _rows(inner, f"{path}{alias}.", f"{prefix}{alias}.")


def _row(section: type[Section], alias: str, path: str, shown_as: str) -> str:
    schema = section.model_json_schema(by_alias=True)["properties"][alias]
    options = [option for option in schema.get("anyOf", [schema]) if option.get("type") != "null"]
    cells = (f"`{shown_as}`", _type(options[0]), _default(section, alias), _bounds(options[0]))
    return f"| {' | '.join(cells)} | {_meaning(section, alias, path)} |".replace("|  |", "| |")


def _meaning(section: type[Section], alias: str, path: str) -> str:
    text = children(section)[alias].description or ""
    works = NOT_YET.get(path + alias)
    if works is None:
        return text
    return f"{text} **Not yet**" + (f": only {_words(works)}." if works else ".")


def _type(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(f"`{word}`" for word in schema["enum"])
    if "x-kubernetes-int-or-string" in schema:
        return "whole number or `auto`" if "maximum" in schema else "whole number or text"
    if schema["type"] == "array":
        return f"list of {_type(schema['items'])}"
    if schema["type"] == "object" and isinstance(schema.get("additionalProperties"), dict):
        return "mapping of texts"
    return _TYPES[schema["type"]]


def _default(section: type[Section], alias: str) -> str:
    field = children(section)[alias]
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is None:
        return "none"
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _bounds(schema: dict[str, Any]) -> str:
    low, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    high, below = schema.get("maximum"), schema.get("exclusiveMaximum")
    parts = []
    if low is not None or above is not None:
        parts.append(f"above {above:g}" if low is None else f"from {low}")
    if high is not None or below is not None:
        parts.append(f"below {below:g}" if high is None else f"to {high}")
    for least, most, unit in (("minLength", "maxLength", "characters"), ("minItems", "maxItems", "items")):
        if most in schema and schema.get(least, 0) == schema[most]:
            parts.append(f"{schema[most]} {unit}")
        elif most in schema:
            parts.append(
                f"{schema[least]} to {schema[most]} {unit}" if least in schema else f"up to {schema[most]} {unit}"
            )
    if "pattern" in schema and "x-kubernetes-int-or-string" not in schema:
        pattern = schema["pattern"].replace("|", "\\|")
        parts.append(f"`{pattern}`")
    if schema.get("type") == "array" and (inner := _bounds(schema["items"])):
        parts.append(f"each {inner}")
    return ", ".join(parts).replace(", to", " to").replace(", below", " and below")


def _words(values: tuple[str | int | bool, ...]) -> str:
    return " or ".join(f"`{value if isinstance(value, str) else json.dumps(value)}`" for value in values)


if __name__ == "__main__":
    sys.stdout.write(reference())
