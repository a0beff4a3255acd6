"""Timelines as a Chrome JSON trace: open it in ui.perfetto.dev or chrome://tracing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rollplex.telemetry.events import KINDS, StepTimeline, batch_changes

# Rows ("tid") of lanes lie this far apart: a lane takes more rows where its items overlap (rewards scored at once),
# as a viewer drops slices that cross each other on one row.
_ROWS_A_LANE = 10_000
_FIRST_ROW = {lane: _ROWS_A_LANE * place for place, lane in enumerate(KINDS, start=1)}


def chrome_trace(steps: Sequence[StepTimeline]) -> str:
    """The steps as one trace: a row of steps, the rows of each lane, and the decode batch as a counter.

    Times are microseconds since the first step's start.
    """
    zero = steps[0].start if steps else 0.0
    rows = {0: "steps"}
    events: list[dict[str, Any]] = []
    for step in steps:
        events.append(_slice(0, "step", f"step {step.step}", step.start - zero, step.seconds, {}))
        for lane, first in _FIRST_ROW.items():
            free_from: list[float] = []  # of each row of the lane
            for event in step.lane(lane):
                place = next((at for at, free in enumerate(free_from) if free <= event.start), len(free_from))
                free_from[place : place + 1] = [event.end]
                rows[first + place] = lane if place == 0 else f"{lane} {place + 1}"
                sizes = {"tokens": event.tokens, "batch": event.batch}
                args = {name: size for name, size in sizes.items() if size}
                name = f"{event.kind} {event.label}".rstrip()
                events.append(_slice(first + place, event.kind, name, event.start - zero, event.seconds, args))
        events.extend(_batch_counter(step, zero))
    names = [{"ph": "M", "pid": 0, "name": "process_name", "args": {"name": "rollplex"}}]
    for row, name in sorted(rows.items()):
        thread = {"ph": "M", "pid": 0, "tid": row}
        names.append({**thread, "name": "thread_name", "args": {"name": name}})
        names.append({**thread, "name": "thread_sort_index", "args": {"sort_index": row}})
    return json.dumps({"traceEvents": names + events, "displayTimeUnit": "ms"}, separators=(",", ":"))


def _batch_counter(step: StepTimeline, zero: float) -> list[dict[str, Any]]:
    counter = {"ph": "C", "pid": 0, "name": "decode batch"}
    return [
        {**counter, "ts": round((at - zero) * 1e6, 3), "args": {"sequences": batch}}
        for at, batch in batch_changes(step)
    ]


def _slice(row: int, kind: str, name: str, start: float, seconds: float, args: dict[str, int]) -> dict[str, Any]:
    times = {"ts": round(start * 1e6, 3), "dur": round(seconds * 1e6, 3)}
    return {"ph": "X", "pid": 0, "tid": row, "cat": kind, "name": name, **times, "args": args}
