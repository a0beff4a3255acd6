"""Helm and the chart, against a control plane."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rollplex_operator.names import FIELD_MANAGER
from tests.cluster import programs
from tests.cluster.client import Object

CHART = programs.REPOSITORY / "charts" / "rollplex"


class HelmError(AssertionError):
    """Helm failed; the text is what it said."""


def helm(*arguments: str, values: Mapping[str, Any] | None = None, kubeconfig: Path | None = None) -> str:
    """What ``helm ...`` prints; ``values`` are passed as a file."""
    command = [str(programs.find("helm")), *arguments]
    command += ["--kubeconfig", str(kubeconfig)] if kubeconfig else []
    command += ["--values", "-"] if values else []
    done = subprocess.run(
        command, input=yaml.safe_dump(dict(values)) if values else "", capture_output=True, text=True, timeout=120
    )
    if done.returncode:
        raise HelmError(done.stderr)
    return done.stdout


def render(values: Mapping[str, Any] | None = None, namespace: str = "ops", chart: Path = CHART) -> list[Object]:
    """The objects that the chart makes, hooks included."""
    text = helm("template", "r", str(chart), "--namespace", namespace, values=values)
    return [each for each in yaml.safe_load_all(text) if each]


@cache
def operator_rules() -> list[dict[str, Any]]:
    """The rules of the roles that the chart gives the operator: those of jobs, and that of its lease."""
    roles = render({"fullnameOverride": FIELD_MANAGER, "rbac": {"aggregatedRoles": False}})
    return [rule for role in roles if role["kind"] in ("ClusterRole", "Role") for rule in role["rules"]]
