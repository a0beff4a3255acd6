"""The job's status while it is worked out: conditions, the phase that follows, and whether it is worth a write.

What a status says falls in two: what others act on (conditions' status and reason, phase, counters) is written at once;
what only informs (step, reward, messages) at most every ``SOFT_SECONDS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from rollplex_operator.names import TERMINAL, Condition, Phase, Reason
from rollplex_operator.times import seconds_of, timestamp

SOFT_SECONDS = 30.0  # DESIGN: progress is written at most so often
NODES_SECONDS = 5.0  # how many pods run, while they start
LARGEST_MESSAGE = 32768  # of a condition, a bound of its schema

_SOFT = ("step", "targetStep", "checkpoint", "overlap", "reward", "nodes", "progressTime")
_NO_PODS = frozenset({Reason.QUOTA_EXCEEDED, Reason.POD_SECURITY, Reason.REFUSED, Reason.WAITING_FOR_OLD_PODS})

Truth = Literal["True", "False", "Unknown"]

# what is said of a job that nobody has looked at
FIRST: tuple[tuple[Condition, Truth, Reason], ...] = (
    (Condition.ADMITTED, "Unknown", Reason.VALID),
    (Condition.PODS_CREATED, "False", Reason.CREATING),
    (Condition.RUNNING, "False", Reason.STARTING),
    (Condition.SUSPENDED, "False", Reason.NOT_SUSPENDED),
    (Condition.COMPLETE, "False", Reason.NOT_YET),
    (Condition.FAILED, "False", Reason.NONE),
    (Condition.NUMA_ALIGNED, "Unknown", Reason.NOT_REPORTED),
    (Condition.CHECKPOINT_SAVED, "False", Reason.NO_CHECKPOINT),
)


class Status:
    """A copy of the job's status that may be changed; :meth:`written` is what the server should have.

    Args:
        before: the status as it is.
        generation: of the job's spec, which the conditions speak about.
        now: seconds since the epoch.
    """

    def __init__(self, before: Mapping[str, Any], generation: int, now: float) -> None:
        self._before, self._generation, self._now = before, generation, now
        self.fields: dict[str, Any] = {key: value for key, value in before.items() if key != "conditions"}
        self._were: dict[str, Mapping[str, Any]] = {each["type"]: each for each in before.get("conditions", ())}
        self._conditions = dict(self._were)
        for condition, status, reason in FIRST:
            if condition not in self._conditions:
                self.set(condition, status, reason)

    # ---- conditions

    def set(
        self, condition: Condition, status: Truth, reason: Reason, message: str = "", *, keep: bool = False
    ) -> None:
        """Say how a condition is. ``keep``: leave the message of the same status and reason, since it only flickers."""
        old = self._were.get(condition)  # what was said in between was never written
        same = old is not None and old["status"] == status
        if old is not None and keep and same and old["reason"] == reason:
            message = old["message"]
        self._conditions[condition] = {
            "type": str(condition),
            "status": status,
            "reason": str(reason),
            "message": message[:LARGEST_MESSAGE],
            "lastTransitionTime": old["lastTransitionTime"] if old is not None and same else timestamp(self._now),
            "observedGeneration": self._generation,
        }

    def is_true(self, condition: Condition) -> bool:
        """Whether it holds."""
        return bool(self._conditions[condition]["status"] == "True")

    def reason(self, condition: Condition) -> str:
        """Its reason."""
        return str(self._conditions[condition]["reason"])

    def since(self, condition: Condition) -> float:
        """When its status changed last (seconds since the epoch)."""
        return seconds_of(self._conditions[condition]["lastTransitionTime"]) or self._now

    # ---- plain fields

    def number(self, field: str) -> int:
        """A counter; 0 where it is missing."""
        value = self.fields.get(field)
        return value if isinstance(value, int) else 0

    @property
    def attempt(self) -> int | None:
        """Of the pods that there may be; None before the first."""
        value = self.fields.get("attempt")
        return value if isinstance(value, int) else None

    @property
    def phase(self) -> Phase:
        """The one phase that the conditions make."""
        if self.is_true(Condition.COMPLETE):
            return Phase.COMPLETE
        if self.is_true(Condition.FAILED):
            return Phase.FAILED
        if self.is_true(Condition.SUSPENDED):
            return Phase.SUSPENDED
        if self.reason(Condition.SUSPENDED) == Reason.SUSPENDING:
            return Phase.SUSPENDING
        if self.is_true(Condition.RUNNING):
            return Phase.RUNNING
        if self.attempt is None or not self.is_true(Condition.ADMITTED):
            return Phase.PENDING
        if self.reason(Condition.RUNNING) == Reason.RESTARTING:
            return Phase.RESTARTING
        return Phase.PENDING if self.reason(Condition.PODS_CREATED) in _NO_PODS else Phase.STARTING

    @property
    def ended(self) -> bool:
        """Whether the job is over."""
        return self.phase in TERMINAL

    # ---- what to write

    def written(self) -> tuple[dict[str, Any] | None, float | None]:
        """(The whole status to write, or None where it is right as it is; when a soft change is due, or None)."""
        after = {key: value for key, value in self.fields.items() if value is not None}
        after["conditions"] = [
            {**self._conditions[kind], "observedGeneration": self._generation} for kind in sorted(self._conditions)
        ]
        after |= {"phase": str(self.phase), "observedGeneration": self._generation}
        before = dict(self._before)
        if after == before:
            return None, None
        if _hard(after) == _hard(before):
            last = seconds_of(before.get("progressTime"))
            only_nodes = {**after, "nodes": None} == {**before, "nodes": None}
            due = None if last is None else last + (NODES_SECONDS if only_nodes else SOFT_SECONDS)
            if due is not None and due > self._now:
                return None, due
            soft = True  # a message alone counts as one
        else:
            soft = any(after.get(key) != before.get(key) for key in _SOFT)
        if soft:
            after["progressTime"] = timestamp(self._now)
        return after, None


def _hard(status: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in status.items() if key not in _SOFT}
    kept["conditions"] = [
        {key: value for key, value in each.items() if key != "message"} for each in status.get("conditions", ())
    ]
    return kept
