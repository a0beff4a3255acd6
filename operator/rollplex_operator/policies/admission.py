"""Whether the job can become pods here: its fields, the rules between them, and what this server has."""

from __future__ import annotations

from rollplex.api.errors import Fault, JobError
from rollplex.api.job import RollplexJob
from rollplex.api.load import job_from
from rollplex_operator import children
from rollplex_operator.names import Condition, Reason
from rollplex_operator.observation import JobView
from rollplex_operator.policies.turn import Turn

_MOST_PARSED = 1024
_parsed: dict[tuple[str, int], RollplexJob | tuple[Fault, ...]] = {}


def admission(turn: Turn) -> bool:
    """Condition Admitted, and the job as read. One that is refused gets no pods; pods that it has are left alone."""
    view, server, status = turn.observation.job, turn.observation.server, turn.status
    parsed = _read(view)
    found = () if isinstance(parsed, RollplexJob) else parsed
    if isinstance(parsed, RollplexJob):
        turn.job = parsed
    if turn.ended:
        return turn.job is None
    if server.schema_fault:
        # what the server drops from a status would be decided again and again
        message = f"{server.schema_fault}; upgrade the CustomResourceDefinition to this operator's version"
        status.set(Condition.ADMITTED, "False", Reason.SCHEMA_TOO_OLD, message)
        return True
    if turn.job is not None and not turn.own:
        found = tuple(children.faults(turn.job, server, turn.observation.settings))
    if not found:
        if status.reason(Condition.ADMITTED) != Reason.QUEUED:
            status.set(Condition.ADMITTED, "True", Reason.VALID)
        return False
    message = "\n".join(str(fault) for fault in found)
    if status.reason(Condition.ADMITTED) != Reason.INVALID_SPEC:
        turn.warn(Reason.INVALID_SPEC, message)
    status.set(Condition.ADMITTED, "False", Reason.INVALID_SPEC, message)
    if turn.wants_suspension:
        return False
    if not turn.own:
        status.set(Condition.SUSPENDED, "False", Reason.NOT_SUSPENDED)
    return True


def _read(view: JobView) -> RollplexJob | tuple[Fault, ...]:
    """The job, or its faults; each generation of a job is read once."""
    key = (view.uid, view.generation)
    found = _parsed.pop(key, None)
    if found is None:
        try:
            found = job_from(view.document, context="cluster")
        except JobError as error:
            found = tuple(error.faults)
    _parsed[key] = found  # the newest is last
    if len(_parsed) > _MOST_PARSED:
        del _parsed[next(iter(_parsed))]
    return found
