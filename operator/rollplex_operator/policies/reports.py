"""What pods say of themselves: how their rank containers ended, and the contract's report in their last words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rollplex_operator.names import CONTAINER
from rollplex_operator.observation import ContainerView, PodView
from rollplex_operator.pods import is_rank

LONGEST = 1000  # characters of a pod's words in a condition


def ranks(pod: PodView) -> list[ContainerView]:
    """Its rank containers: what else a template added decides nothing."""
    return [container for container in pod.containers if is_rank(container.name)]


def driver(pod: PodView) -> ContainerView | None:
    """The container that drives the job, if this is its pod."""
    if pod.index != 0:
        return None
    return next((container for container in pod.containers if container.name == CONTAINER), None)


def report_of(container: ContainerView) -> Mapping[str, Any]:
    """The JSON of its termination message; {} where it is something else."""
    try:
        found = json.loads(container.termination_message)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def step_of(report: Mapping[str, Any]) -> int | None:
    """Last committed step."""
    return whole(report.get("step"))


def whole(value: Any) -> int | None:
    """A whole number; a bool is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def number(value: Any) -> float | None:
    """A finite number; a bool is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value - value != 0:
        return None
    return value


def words_of(container: ContainerView) -> str:
    """What it said at its end, for people."""
    report = report_of(container)
    said = report.get("message", "") if report else container.termination_message
    return str(said).strip()[:LONGEST]


def place(pod: PodView) -> str:
    """The pod and where it is."""
    return f"pod {pod.name} on node {pod.node}" if pod.node else f"pod {pod.name}"


def some(names: list[str], shown: int = 3) -> str:
    """A few names of many."""
    more = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {more} more" if more > 0 else "")
