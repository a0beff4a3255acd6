"""From a job file to a RollplexJob, or to every fault in it at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from rollplex.api.base import shown
from rollplex.api.document import read_document, with_overrides, with_value, without
from rollplex.api.errors import Fault, JobError
from rollplex.api.fields import locate
from rollplex.api.job import API_VERSION, KIND, RollplexJob
from rollplex.api.not_yet import not_yet, unset_parts
from rollplex.api.rules import RULES
from rollplex.api.wording import KEY, dotted, errors_of, fault_of, sibling_meant

Context = Literal["job", "train", "cluster"]


def load_job(
    path: str | Path, overrides: Sequence[str] = (), *, context: Context = "job", ranks: int | None = None
) -> RollplexJob:
    """Read a job file.

    Args:
        path: YAML (or JSON). Relative paths inside the job are relative to the current directory, not to this file.
        overrides: ``training.steps=20`` and the like, below ``spec``.
        context: job checks the document itself; train also refuses what cannot be trained yet; cluster also checks
            what becomes of it in pods.
        ranks: how many there will be, where that is known (context cluster knows it from the job).

    Raises:
        JobError: with every fault that was found.
    """
    return job_from(with_overrides(read_document(path), overrides), context=context, ranks=ranks)


def job_from(document: Mapping[str, Any], *, context: Context = "job", ranks: int | None = None) -> RollplexJob:
    """A job from plain data, checked as :func:`load_job` does."""
    _refuse_other_kinds(document)
    job, faults, doubtful = _parse(document)
    if job is not None:
        faults += check(job, context=context, ranks=ranks, doubtful=doubtful)
    if job is None or faults:
        raise JobError(faults)
    return job


def check(
    job: RollplexJob, *, context: Context = "job", ranks: int | None = None, doubtful: frozenset[str] = frozenset()
) -> list[Fault]:
    """Faults of a job whose fields are right one by one; rules that read a ``doubtful`` field are left out."""
    if context == "cluster":
        ranks = job.spec.nodes * job.spec.hardware.ranks_per_node
        unknown_ranks = not doubtful.isdisjoint(("spec.nodes", "spec.hardware", "spec.hardware.ranksPerNode"))
    else:
        unknown_ranks = ranks is None
    found = not_yet(job, ranks) if context == "train" else []
    for rule in RULES:
        silent = (rule.scope == "cluster" and context != "cluster") or (rule.scope == "ranks" and unknown_ranks)
        if not silent and not rule.reads_any(doubtful):
            found += rule.check(job.spec, ranks or 1)
    first: dict[str, Fault] = {}
    for fault in found:
        first.setdefault(fault.path, fault)  # a tensor degree that is not there yet need not divide the ranks too
    return list(first.values())


def resolved_yaml(job: RollplexJob) -> str:
    """The whole job with its defaults, as a job file; parts that are not built yet only where it has them."""
    document: Any = job.model_dump(mode="json", by_alias=True, exclude_none=True)
    for keys in unset_parts(job):
        document = without(document, keys)
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)
    return text


def _refuse_other_kinds(document: Mapping[str, Any]) -> None:
    """A document of another kind is one fault, not a hundred unknown keys."""
    faults = [
        Fault(
            key,
            f"is missing; write {key}: {known}" if key not in document else f"{shown(document[key])} is not {known}",
        )
        for key, known in (("apiVersion", API_VERSION), ("kind", KIND))
        if document.get(key) != known
    ]
    if faults:
        raise JobError(faults)


def _parse(document: Mapping[str, Any]) -> tuple[RollplexJob | None, list[Fault], frozenset[str]]:
    """The job, its fields' faults, and the fields that are not as the user meant them.

    Where fields are wrong, the rest is validated again without them, so that the rules between fields can speak about
    it in the same breath. None: too little is right for that.
    """
    faults: list[Fault] = []
    doubtful: set[str] = set()
    for _ in range(4):  # dropping a value can leave its owner incomplete: that is repaired in the next round
        try:
            return RollplexJob.model_validate(document, by_alias=True, by_name=False), faults, frozenset(doubtful)
        except ValidationError as error:
            details = errors_of(error)
        if not faults:
            faults = [fault_of(detail, RollplexJob) for detail in details]
        for detail in details:
            loc = _droppable(detail)
            section, field = locate(RollplexJob, loc)
            if detail["type"] == "missing":
                if field is None or not field.examples:
                    return None, faults, frozenset(doubtful)
                document = with_value(document, loc, field.examples[0])
            else:
                document = without(document, loc)
            meant = sibling_meant(section, str(loc[-1])) if field is None else str(loc[-1])
            if meant is not None:
                doubtful.add(dotted((*loc[:-1], meant)))
    return None, faults, frozenset(doubtful)


def _droppable(detail: ErrorDetails) -> tuple[int | str, ...]:
    """The smallest part of a document whose absence leaves the other paths as they are."""
    loc = detail["loc"]
    if loc[-1] == KEY:
        return loc[:-2]
    while isinstance(loc[-1], int) and detail["type"] != "invalid_key":
        loc = loc[:-1]  # not an item alone: the others' numbers would change
    return loc
