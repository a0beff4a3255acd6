"""An attempt: one set of pods, made together and gone together."""

from __future__ import annotations

from rollplex_operator.names import Condition, Reason
from rollplex_operator.turn import Turn


def begin_attempt(turn: Turn, attempt: int) -> None:
    """From now on the pods of this number count."""
    turn.status.fields |= {"attempt": attempt, "inPlaceRestarts": 0, "rejections": None, "numa": None, "gang": None}
    turn.status.set(Condition.PODS_CREATED, "False", Reason.CREATING)
    turn.status.set(Condition.NUMA_ALIGNED, "Unknown", Reason.NOT_REPORTED)
    for counter in ("step", "restarts", "restartsCountedTowardsMax"):
        turn.status.fields.setdefault(counter, 0)  # kubectl leaves a column out where there is nothing
    turn.status.fields["targetStep"] = turn.spec.spec.training.steps
    chosen = turn.resolved
    turn.status.fields |= {
        "numa": {"pinning": chosen.pinning, "gpuAllocation": chosen.gpu_allocation},
        "gang": chosen.gang,
    }
