"""Writes the CustomResourceDefinition from the models: ``python -m rollplex.api.crd > crds/rollplexjobs.yaml``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import yaml

from rollplex.api.cel import CEL, NAME
from rollplex.api.cel_text import validation
from rollplex.api.cel_update import update_rules
from rollplex.api.job import API_VERSION, KIND, JobSpec
from rollplex.api.pod_template import template_schema
from rollplex.api.reward import OPTIONS
from rollplex.api.schema import Schema, structural
from rollplex.api.status import JobStatus

GROUP, VERSION = API_VERSION.split("/")
PLURAL = "rollplexjobs"

_HEAD = "# Written by `make crds` from trainer/rollplex/api; a test fails where it differs.\n"
_COLUMNS = (
    ("Phase", "string", ".status.phase", 0, "Where the job is."),
    ("Step", "integer", ".status.step", 0, "Last committed step."),
    ("Nodes", "string", ".status.nodes", 0, "Pods that run, of all."),
    ("Restarts", "integer", ".status.restarts", 0, "Restarts of all kinds."),
    ("Saved%", "number", ".status.overlap.savedPercent", 0, "Seconds saved by overlap, of those without it."),
    ("Target", "integer", ".status.targetStep", 1, "Step at which the job is complete."),
    ("Hidden%", "number", ".status.overlap.hiddenPercent", 1, "Compute that ran under decoding."),
    ("Reward", "number", ".status.reward", 1, "Mean reward of the last step."),
    ("Checkpoint", "integer", ".status.checkpoint.step", 1, "Step of the newest checkpoint."),
    ("Queue", "string", ".spec.scheduling.queue", 1, "Queue that admits the job."),
    ("Age", "date", ".metadata.creationTimestamp", 0, "Since it was created."),
)


def schema() -> Schema:
    """The structural schema of a RollplexJob."""
    spec = structural(JobSpec, "What to train, on what, how, and where.")
    spec["properties"]["volumes"] |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["path"]}
    for free, form in (
        (spec["properties"]["podTemplate"], template_schema()),
        (spec["properties"]["reward"]["items"]["properties"]["options"], _reward_options()),
    ):
        free |= form
        del free["x-kubernetes-preserve-unknown-fields"]
    status = structural(JobStatus, "Where the job is.", defaults=False)
    status["properties"]["conditions"] |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    whole = {"type": "object", "properties": {"spec": spec}}
    for at, rule in _rules():
        _node(whole, at).setdefault("x-kubernetes-validations", []).append(rule)
    texts = {"apiVersion": "Version of this format.", "kind": "Kind of object."}
    return {
        "type": "object",
        "description": "RollplexJob post-trains a vision-language model with reinforcement learning.",
        "required": ["spec"],
        "x-kubernetes-validations": whole["x-kubernetes-validations"],
        "properties": {
            **{name: {"type": "string", "description": text} for name, text in texts.items()},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
    }


def _rules() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every rule with where it stands."""
    yield NAME.at, validation(NAME, "metadata.name is a short name")
    for check, mirrored in CEL.items():
        for cel in mirrored:
            yield cel.at, validation(cel, check.__doc__ or "")
    for cel in update_rules():
        yield cel.at, validation(cel, f"{cel.field} cannot be changed")


def _node(schema: Schema, at: str) -> Schema:
    """The part of a schema at ``spec.reward[]``."""
    for part in at.split(".") if at else ():
        schema = schema["properties"][part.removesuffix("[]")]
        schema = schema["items"] if part.endswith("[]") else schema
    return schema


def definition() -> dict[str, Any]:
    """The CustomResourceDefinition."""
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema()},
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            {"name": name, "type": kind, "jsonPath": path, "priority": priority, "description": text}
            for name, kind, path, priority, text in _COLUMNS
        ],
        "selectableFields": [{"jsonPath": ".status.phase"}],
    }
    names = {
        "kind": KIND,
        "listKind": f"{KIND}List",
        "plural": PLURAL,
        "singular": KIND.lower(),
        "shortNames": ["rpj"],
        "categories": ["all"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def crd_yaml() -> str:
    """The file, with its head."""
    text: str = yaml.safe_dump(definition(), sort_keys=False, allow_unicode=True, width=120)
    return _HEAD + text


def _reward_options() -> Schema:
    """All named rewards' options in one mapping; rules say which go with which."""
    properties: Schema = {}
    for name, section in OPTIONS.items():
        for alias, option in structural(section, defaults=False)["properties"].items():
            if alias in properties:
                raise ValueError(f"two rewards have an option {alias}, so that one schema cannot hold both")
            properties[alias] = option | {"description": f"{name}: {option['description']}"}
    return {"properties": properties}


if __name__ == "__main__":
    sys.stdout.write(crd_yaml())
