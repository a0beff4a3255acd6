"""The children that are no pods: written where they differ from what they should be, deleted once nobody needs them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from rollplex.api.job import RollplexJob
from rollplex_operator import children
from rollplex_operator.decision import Delete, Manifest
from rollplex_operator.names import ANNOTATION_CONTENT
from rollplex_operator.observation import ChildView, JobView, Settings
from rollplex_operator.policies.turn import Turn

BUDGET = "PodDisruptionBudget"
OF_ATTEMPT = frozenset({"PodGroup", "ResourceClaimTemplate"})


def apply(turn: Turn) -> None:
    """Write what differs, delete what is not wanted any more."""
    have = {(child.kind, child.name): child for child in _own(turn)}
    for manifest in _wanted(turn):
        known = have.pop((manifest["kind"], manifest["metadata"]["name"]), None)
        if known is None or known.content != manifest["metadata"]["annotations"][ANNOTATION_CONTENT]:
            turn.applies.append(manifest)
    _delete(turn, have.values())


def tidy(turn: Turn) -> None:
    """Delete what only running pods need: the budget, and the objects of an attempt, where the job has no such pods."""
    _delete(turn, [child for child in _own(turn) if child.kind == BUDGET or child.kind in OF_ATTEMPT])


def _delete(turn: Turn, unwanted: Iterable[ChildView]) -> None:
    needed = {pod.attempt for pod in turn.own if pod.phase not in ("Succeeded", "Failed")}
    for child in unwanted:
        if not child.deleting and (child.kind not in OF_ATTEMPT or child.attempt not in needed):
            turn.deletes[child.uid] = Delete(child.kind, child.name, child.uid)


def _own(turn: Turn) -> list[ChildView]:
    return [child for child in turn.observation.children if child.owner_uid == turn.observation.job.uid]


def _wanted(turn: Turn) -> tuple[Manifest, ...]:
    view, attempt = turn.observation.job, turn.status.attempt
    assert attempt is not None
    key = _Key(view, turn.spec)
    return _built(key, turn.resolved, attempt, turn.observation.settings)


class _Key:
    """A job by its uid and generation, so that its manifests are built once for each."""

    def __init__(self, view: JobView, job: RollplexJob) -> None:
        self.view, self.job = view, job
        self._identity = view.uid, view.generation

    def __hash__(self) -> int:
        return hash(self._identity)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self._identity == other._identity


@lru_cache(maxsize=1024)
def _built(key: _Key, resolved: children.Resolved, attempt: int, settings: Settings) -> tuple[Manifest, ...]:
    return children.others(key.view, key.job, resolved, attempt, settings)
