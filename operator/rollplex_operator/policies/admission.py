"""Whether the job can become pods here: its fields, the rules between them, and what this server has."""

from __future__ import annotations

from rollplex.api.errors import Fault, JobError
from rollplex.api.job import RollplexJob
from rollplex.api.load import job_from
from rollplex_operator import children
from rollplex_operator.names import TERMINAL, Condition, Reason
from rollplex_operator.observation import JobView
from rollplex_operator.turn import Turn

_PARSED: dict[tuple[str, int], RollplexJob | tuple[Fault, ...]] = {}
_MOST_PARSED = 1024


def admission(turn: Turn) -> bool:
    """Condition Admitted. A job that is refused gets no pods; one that has some keeps them."""
    view, server = turn.observation.job, turn.observation.server
    parsed = _parse(view)
    found = [] if isinstance(parsed, RollplexJob) else list(parsed)
    if isinstance(parsed, RollplexJob):
        turn.job = parsed
    if turn.status.phase in TERMINAL:
        return False
    if isinstance(parsed, RollplexJob) and not turn.own:
        found = children.faults(parsed, server, turn.observation.settings)
    if server.schema_fault and not turn.own:
        turn.status.set(Condition.ADMITTED, "False", Reason.SCHEMA_TOO_OLD, server.schema_fault)
        return True
    if found:
        message = "\n".join(f"{fault.path}: {fault.message}" for fault in found)
        if turn.status.reason(Condition.ADMITTED) != Reason.INVALID_SPEC:
            turn.warn(Reason.INVALID_SPEC, message)
        turn.status.set(Condition.ADMITTED, "False", Reason.INVALID_SPEC, message)
        return True
    held = [pod for pod in turn.current if pod.gated and pod.deleting_since is None]
    if held:
        queue = turn.spec.spec.scheduling.queue
        message = f"scheduling gates hold {held[0].name}" + (f" in queue {queue}" if queue else "")
        turn.status.set(Condition.ADMITTED, "False", Reason.QUEUED, message)
    else:
        turn.status.set(Condition.ADMITTED, "True", Reason.VALID)
    return False


def _parse(view: JobView) -> RollplexJob | tuple[Fault, ...]:
    """The job, or its faults; a generation of a job is read once."""
    key = (view.uid, view.generation)
    if key not in _PARSED:
        if len(_PARSED) >= _MOST_PARSED:
            _PARSED.clear()
        try:
            # labels and annotations are others' business, and change without a generation
            document = {**view.document, "metadata": {"name": view.name, "namespace": view.namespace}}
            _PARSED[key] = job_from(document, context="cluster")
        except JobError as error:
            _PARSED[key] = tuple(error.faults)
    return _PARSED[key]
