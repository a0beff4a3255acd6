"""The step's clock: lanes record their items here, and hidden, exposed and saved are read off the finished timeline.

Hidden and exposed are interval arithmetic on one step (:mod:`rollplex.telemetry.events`). Saved needs to know what the
same work costs alone: the :class:`Yardstick` learns that from the items of the same run that nothing overlapped.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import log2
from threading import Lock

from rollplex.telemetry.events import (
    KINDS,
    Event,
    StepTimeline,
    compute_seconds,
    covered,
    decode_seconds,
    exposed_by_kind,
    exposed_seconds,
    hidden_by_kind,
    hidden_seconds,
)

__all__ = [
    "YARDSTICK_WINDOW",
    "Event",
    "Span",
    "StepTimeline",
    "Timeline",
    "Yardstick",
    "exposed_by_kind",
    "exposed_seconds",
    "hidden_by_kind",
    "hidden_seconds",
    "saved_seconds",
    "timeline_metrics",
]

# Newest observations of one kind or bucket that the yardstick keeps: responses grow while a policy learns.
YARDSTICK_WINDOW = 512


@dataclass(slots=True)
class Span:
    """What the body of ``Timeline.span`` may still say about its item: sizes are often known only at its end."""

    tokens: int
    batch: int


class Timeline:
    """Collects the events of the step in flight; any thread may record.

    ``clock`` returns seconds and never goes back.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._lock = Lock()
        self._events: list[Event] = []
        self._start = clock()

    def start(self) -> None:
        """The step begins now: seconds before it (data, checkpoint, evaluation) are not the step's."""
        with self._lock:
            self._events = []
            self._start = self._clock()

    def record(
        self, lane: str, kind: str, label: str, start: float, end: float, tokens: int = 0, batch: int = 0
    ) -> None:
        """Add one finished item; times are this timeline's clock.

        ``label`` says which one of its kind; a leading kind ("ref_prefix 3") is dropped, as every view shows it anyway.

        Raises:
            ValueError: a lane or kind outside ``KINDS``, an end before the start, or an engine step without the
                number that its yardstick needs (decode: batch; prefill: tokens).
        """
        if kind not in KINDS.get(lane, ()):
            known = KINDS.get(lane) or tuple(KINDS)
            raise ValueError(f"{lane}/{kind} is no item of the timeline; known: {', '.join(known)}")
        if end < start:
            raise ValueError(f"{lane}/{kind} {label} ends at {end}, before its start {start}")
        if (kind == "decode" and batch < 1) or (kind == "prefill" and tokens < 1):
            need = "batch" if kind == "decode" else "tokens"
            raise ValueError(f"{lane}/{kind} {label} has no {need}; an engine step is measured by it: pass {need}=")
        event = Event(lane, kind, label.removeprefix(kind).lstrip(), start, end, tokens, batch)
        with self._lock:
            self._events.append(event)

    @contextmanager
    def span(self, lane: str, kind: str, label: str, tokens: int = 0, batch: int = 0) -> Iterator[Span]:
        """Record the body as one item; an item that raises is not recorded. Sizes may be set on the yielded span."""
        span = Span(tokens, batch)
        start = self._clock()
        yield span
        self.record(lane, kind, label, start, self._clock(), span.tokens, span.batch)

    def finish(self, step: int) -> StepTimeline:
        """Close the step now and hand its events over; the next one begins here unless ``start`` says later."""
        with self._lock:
            events, self._events = self._events, []
            start, self._start = self._start, self._clock()
            end = self._start
        return StepTimeline(step, start, end, tuple(sorted(events, key=lambda event: event.start)))


class Yardstick:
    """What work costs alone, measured in the same run.

    - an engine step that decodes: seconds, by batch bucket (powers of two), where no compute item ran meanwhile;
    - an engine step that prefills: seconds per token, by token bucket, likewise;
    - a compute item: seconds per token, where decode was idle meanwhile; an item without tokens counts as one.

    Each is a median over the newest :data:`YARDSTICK_WINDOW` observations; those per token weigh by their tokens, so
    that many small items do not speak for a large one. Both sides exist once a run has done a step under ``serial``.
    """

    def __init__(self) -> None:
        # (kind, bucket) -> (seconds per unit, units); compute kinds have the one bucket 1
        self._seen: dict[tuple[str, int], deque[tuple[float, int]]] = {}
        self._medians: dict[tuple[str, int], float] = {}  # what was asked for since the last observation

    def observe(self, step: StepTimeline) -> None:
        """Learn from the items of one step that ran alone."""
        self._medians.clear()
        alone = [(event, end) for event, end in step.decode_turns if not covered(event.start, end, step.computing)]
        alone += [
            (event, event.end)
            for event in step.lane("compute")
            if not covered(event.start, event.end, step.decode_busy)
        ]
        for event, end in alone:
            seen = self._seen.setdefault((event.kind, _bucket(event)), deque(maxlen=YARDSTICK_WINDOW))
            seen.append(((end - event.start) / _units(event), _units(event)))

    def alone_seconds(self, event: Event) -> float | None:
        """Seconds that this item takes alone; None if its kind was never seen alone.

        An engine step whose bucket was never seen takes the nearest one (of two equally near ones the smaller: it
        makes decode look faster alone, so that saved is never flattered).
        """
        buckets = [bucket for kind, bucket in self._seen if kind == event.kind]
        if not buckets:
            return None
        wanted = _bucket(event)
        nearest = min(buckets, key=lambda bucket: (abs(log2(bucket / wanted)), bucket))
        key = (event.kind, nearest)
        if key not in self._medians:
            self._medians[key] = _weighted_median(self._seen[key])
        return self._medians[key] * _units(event)


def saved_seconds(step: StepTimeline, yardstick: Yardstick, recomputed_seconds: float = 0.0) -> float | None:
    """What overlapping was worth in this step, in seconds; negative if it cost more than it hid.

    The stand-alone seconds of the hidden work (the hidden fraction of each item times what it takes alone), minus what
    decode lost (over engine steps that compute overlapped: their seconds minus the yardstick's), minus
    ``recomputed_seconds``, the forwards of this step that ran twice.

    Returns:
        None if the yardstick lacks a kind that was hidden or decode's own seconds: then nothing can be said.
    """
    saved = 0.0 - recomputed_seconds  # not -0.0
    for event in step.lane("compute"):
        hidden = covered(event.start, event.end, step.decode_busy)
        if hidden:
            alone = yardstick.alone_seconds(event)
            if alone is None:
                return None
            saved += alone * hidden / event.seconds
    for event, end in step.decode_turns:
        if covered(event.start, end, step.computing):
            alone = yardstick.alone_seconds(event)
            if alone is None:
                return None
            saved -= end - event.start - alone
    return saved


def timeline_metrics(
    step: StepTimeline, yardstick: Yardstick, recomputed_seconds: float = 0.0
) -> dict[str, float | None]:
    """The ``seconds/...`` metrics of a step under their names in metrics.jsonl; None: not measured."""
    return {
        "seconds/step": step.seconds,
        "seconds/decode": decode_seconds(step),
        "seconds/hidden": hidden_seconds(step),
        "seconds/saved": saved_seconds(step, yardstick, recomputed_seconds),
        "seconds/exposed": exposed_seconds(step),
        **{f"seconds/phase/{kind}": seconds for kind, seconds in compute_seconds(step).items()},
    }


def _units(event: Event) -> int:
    """What an item's stand-alone seconds are proportional to: its tokens; a decoding engine step is one unit."""
    return 1 if event.kind == "decode" else max(event.tokens, 1)


def _bucket(event: Event) -> int:
    """The power of two at or above an engine step's batch (decode) or tokens (prefill); 1 for compute items."""
    size = {"decode": event.batch, "prefill": event.tokens}.get(event.kind, 1)
    return 1 << (size - 1).bit_length()


def _weighted_median(seen: deque[tuple[float, int]]) -> float:
    """The smallest value with at least half the weight at or below it."""
    ordered = sorted(seen)
    half = sum(weight for _, weight in ordered) / 2
    reached = 0
    for value, weight in ordered:
        reached += weight
        if reached >= half:
            return value
    raise ValueError("the median of nothing")
