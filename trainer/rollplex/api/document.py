"""A job's text as plain data: YAML without its surprises, and ``--set`` overrides put into it."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from rollplex.api.base import shown
from rollplex.api.errors import Fault, JobError

Loc = Sequence[int | str]


class _Reader(yaml.SafeLoader):
    """YAML as the API server reads it: 1e-6 is a number, and a key that is written twice is a fault."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self.twice: list[tuple[int, str]] = []

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if isinstance(key, yaml.ScalarNode) and key.value in lines and key.value != "<<":
                self.twice.append((line, f"{key.value} is given twice, first in line {lines[key.value]}; remove one"))
            lines.setdefault(str(key.value), line)
        return super().construct_mapping(node, deep)


# PyYAML's own rule wants a dot in the mantissa: learningRate: 1e-6 would be text
_Reader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def read_yaml(text: str | bytes, name: str) -> Any:
    """Plain data of one YAML document.

    Raises:
        JobError: not YAML, more than one document, or keys that are given twice, with their lines in ``name``.
    """
    try:
        reader = _Reader(text)
        try:
            data = reader.get_single_data()
        finally:
            reader.dispose()
    except yaml.MarkedYAMLError as error:
        if error.context == "expected a single document in the stream":
            raise JobError.at(name, "holds more than one document; write one RollplexJob a file") from None
        at = f"{name}:{error.problem_mark.line + 1}" if error.problem_mark else name
        raise JobError.at(at, f"not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise JobError.at(name, f"not YAML: {str(error).splitlines()[0]}") from None
    if reader.twice:
        raise JobError(Fault(f"{name}:{line}", message) for line, message in sorted(set(reader.twice)))
    return data


def read_document(path: str | Path) -> dict[str, Any]:
    """The mapping in a job file; raises JobError naming the file where there is none."""
    try:
        text = Path(path).read_bytes()
    except FileNotFoundError:
        raise JobError.at(str(path), "there is no such file") from None
    except OSError as error:
        raise JobError.at(str(path), f"cannot be read: {error.strerror}") from None
    document = read_yaml(text, str(path))
    if not isinstance(document, dict):
        raise JobError.at(str(path), "is not a mapping with apiVersion, kind, metadata and spec")
    return document


def with_overrides(document: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """The document with ``training.steps=20``-like values put under ``spec`` (a number picks an item of a list).

    Values are read as YAML; an empty one means the default. Whether a key exists is checked with the rest of the job.

    Raises:
        JobError: overrides that are not KEY=VALUE, or lead through something that is no mapping or list.
    """
    faults: list[Fault] = []
    changed: Any = dict(document)
    for override in overrides:
        option = f"--set {override}"
        key, equals, text = override.partition("=")
        keys = key.strip().removeprefix("spec.").split(".")
        if not equals or not all(keys):
            faults.append(Fault(option, "is not KEY=VALUE, such as training.steps=20"))
            continue
        try:
            changed = with_value(changed, ["spec", *keys], read_yaml(text, option))
        except JobError as error:
            faults += [Fault(option, fault.message) for fault in error.faults]
        except LookupError as error:
            faults.append(Fault(option, str(error.args[0])))
    if faults:
        raise JobError(faults)
    return dict(changed)


def with_value(node: Any, loc: Loc, value: Any) -> Any:
    """A copy of plain data with ``value`` at ``loc``; mappings on the way are made, items of lists must exist.

    Raises LookupError saying what is in the way.
    """
    if not loc:
        return value
    key, rest = loc[0], loc[1:]
    if node is None:
        node = {}
    if isinstance(node, Mapping):
        return {**node, key: with_value(node.get(key), rest, value)}
    if isinstance(node, list):
        if not str(key).isdigit() or int(key) >= len(node):
            raise LookupError(f"{key} is no item of a list of {len(node)} (they count from 0)")
        index = int(key)
        return [*node[:index], with_value(node[index], rest, value), *node[index + 1 :]]
    raise LookupError(f"{key} cannot be set in {shown(node)}, which is neither a mapping nor a list")


def without(node: Any, loc: Loc) -> Any:
    """A copy of plain data without what is at ``loc``."""
    key, rest = loc[0], loc[1:]
    if isinstance(node, Mapping):
        return {k: without(v, rest) if k == key else v for k, v in node.items() if rest or k != key}
    if isinstance(node, list) and isinstance(key, int):
        return [without(v, rest) if k == key else v for k, v in enumerate(node) if rest or k != key]
    return node
