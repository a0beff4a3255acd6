"""Who ran when: the events of one step, and what of the compute lane ran under decode.

Times are seconds of one monotonic clock. The items of a lane follow one another; items of different lanes overlap.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import inf
from pathlib import Path
from statistics import median

COMPUTE_KINDS = (
    "encode",
    "ref_prefix",
    "actor_prefix",
    "ref_suffix",
    "actor_suffix",
    "prefix_backward",
    "encode_backward",
    "update",
    "publish",
)
# An engine step that processed prompt tokens is "prefill", also where it decoded other sequences: its seconds follow
# its tokens, those of a "decode" step follow its batch.
DECODE_KINDS = ("prefill", "decode")
CPU_KINDS = ("data", "reward", "advantage")
KINDS = {"decode": DECODE_KINDS, "compute": COMPUTE_KINDS, "cpu": CPU_KINDS}

# Between two engine steps the decode lane collects tokens and admits requests: it is at work although no kernel of its
# own runs. A longer gap is a lane that waits for somebody.
GAP_SECONDS = 0.002
GAP_SHARE_OF_STEP = 0.05

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Event:
    """One item of work on one lane.

    ``tokens`` are the tokens that went through the model (an engine step: prompt and response tokens together),
    ``batch`` the sequences in an engine step; 0 where the word does not apply. ``label`` says which group or prompt.
    """

    lane: str
    kind: str
    label: str
    start: float
    end: float
    tokens: int = 0
    batch: int = 0

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True)
class StepTimeline:
    """The finished timeline of one step; ``events`` are ordered by start.

    What several numbers are read off is computed once: a step may have thousands of events.
    """

    step: int
    start: float
    end: float
    events: tuple[Event, ...]

    @property
    def seconds(self) -> float:
        return self.end - self.start

    def lane(self, lane: str) -> list[Event]:
        return self._lanes[lane]

    @cached_property
    def _lanes(self) -> dict[str, list[Event]]:
        lanes: dict[str, list[Event]] = {lane: [] for lane in KINDS}
        for event in self.events:
            lanes[event.lane].append(event)
        return lanes

    @cached_property
    def decode_turns(self) -> list[tuple[Event, float]]:
        """Each engine step with the end of its turn: the next one's start if the gap to it is short, else its own end.

        Short is at most 2 ms or 5% of the step's median engine step, whichever is longer (:data:`GAP_SECONDS`,
        :data:`GAP_SHARE_OF_STEP`).
        """
        engine = self.lane("decode")
        if not engine:
            return []
        bound = max(GAP_SECONDS, GAP_SHARE_OF_STEP * median([event.end - event.start for event in engine]))
        ends = [
            following.start if 0 < following.start - event.end <= bound else event.end
            for event, following in pairwise(engine)
        ]
        return list(zip(engine, [*ends, engine[-1].end], strict=True))

    @cached_property
    def decode_busy(self) -> list[Interval]:
        """When the decode lane was at work: the union of its engine steps' turns."""
        return merged([(event.start, end) for event, end in self.decode_turns])

    @cached_property
    def computing(self) -> list[Interval]:
        """When the compute lane was at work: the union of its items."""
        return merged([(event.start, event.end) for event in self.lane("compute")])

    def to_json(self) -> str:
        """One line: step, start, end and each event as [lane, kind, label, start, end, tokens, batch]; microseconds."""
        events = [(e.lane, e.kind, e.label, round(e.start, 6), round(e.end, 6), e.tokens, e.batch) for e in self.events]
        return json.dumps(
            {"step": self.step, "start": round(self.start, 6), "end": round(self.end, 6), "events": events},
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, line: str) -> StepTimeline:
        row = json.loads(line)
        return cls(row["step"], row["start"], row["end"], tuple(Event(*fields) for fields in row["events"]))


def read_timelines(path: Path) -> Iterator[StepTimeline]:
    """The steps of a ``timeline.jsonl``, oldest first; a last line that a crash cut short is left out."""
    with path.open() as lines:
        for line in lines:
            if line.endswith("\n"):
                yield StepTimeline.from_json(line)


def batch_changes(step: StepTimeline) -> list[tuple[float, int]]:
    """The decode batch over time: (seconds, sequences from then on); 0 where the decode lane falls idle."""
    changes: list[tuple[float, int]] = []
    idle_from = None
    for event, end in step.decode_turns:
        if idle_from is not None and event.start > idle_from:
            changes.append((idle_from, 0))
        if not changes or changes[-1][1] != event.batch:
            changes.append((event.start, event.batch))
        idle_from = end
    return changes if idle_from is None else [*changes, (idle_from, 0)]


def merged(intervals: Sequence[Interval]) -> list[Interval]:
    """The union of intervals as disjoint ones in order; touching ones become one, empty ones vanish."""
    union: list[Interval] = []
    for start, end in sorted(intervals):
        if end <= start:
            continue
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        else:
            union.append((start, end))
    return union


def covered(start: float, end: float, union: Sequence[Interval]) -> float:
    """Seconds of [start, end] inside the disjoint, ordered intervals of ``union``."""
    seconds = 0.0
    for low, high in union[max(bisect_right(union, (start, inf)) - 1, 0) :]:
        if low >= end:
            break
        inside = (high if high < end else end) - (low if low > start else start)
        if inside > 0:
            seconds += inside
    return seconds


def decode_seconds(step: StepTimeline) -> float:
    """Seconds in which the decode lane was at work."""
    return sum(end - start for start, end in step.decode_busy)


def compute_seconds(step: StepTimeline) -> dict[str, float]:
    """Seconds of the compute lane by kind; kinds that did not run are absent."""
    return _by_kind((event.kind, event.seconds) for event in step.lane("compute"))


def hidden_by_kind(step: StepTimeline) -> dict[str, float]:
    """Seconds of the compute lane inside decode's busy intervals, by kind."""
    busy = step.decode_busy
    return _by_kind((event.kind, covered(event.start, event.end, busy)) for event in step.lane("compute"))


def exposed_by_kind(step: StepTimeline) -> dict[str, float]:
    """Seconds of the compute lane outside decode's busy intervals, by kind: what the step had to wait for."""
    hidden = hidden_by_kind(step)
    return {kind: seconds - hidden[kind] for kind, seconds in compute_seconds(step).items()}


def hidden_seconds(step: StepTimeline) -> float:
    """Seconds of compute that ran under decode. Hidden is not saved: decode may have paid for it."""
    return sum(hidden_by_kind(step).values())


def exposed_seconds(step: StepTimeline) -> float:
    """Seconds of compute that the step had to wait for; hidden + exposed are all the compute lane's seconds."""
    return sum(exposed_by_kind(step).values())


def _by_kind(seconds: Iterator[tuple[str, float]]) -> dict[str, float]:
    totals: dict[str, float] = {}
    for kind, value in seconds:
        totals[kind] = totals.get(kind, 0.0) + value
    return {kind: totals[kind] for kind in COMPUTE_KINDS if kind in totals}
