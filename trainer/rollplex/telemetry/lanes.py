"""The picture of a step: who ran when, and what of the compute lane lay under decode."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rollplex.telemetry.events import (
    COMPUTE_KINDS,
    CPU_KINDS,
    DECODE_KINDS,
    StepTimeline,
    batch_changes,
    exposed_seconds,
    hidden_seconds,
)
from rollplex.telemetry.keys import Value

# Forward passes of one model share a hue (reference green, actor blue), backwards are warm, and the two ends of the
# step are dark; light enough that black labels stay readable except on the last two.
COLOURS = {
    "prefill": "#8d99ae",
    "decode": "#c9d1de",
    "encode": "#c8a2d6",
    "ref_prefix": "#8fcf9b",
    "ref_suffix": "#4fa866",
    "actor_prefix": "#8fc1ea",
    "actor_suffix": "#3f8fd2",
    "prefix_backward": "#f5b35f",
    "encode_backward": "#e8855b",
    "update": "#b23a48",
    "publish": "#5b2333",
    "data": "#d9c7a7",
    "reward": "#e6d84f",
    "advantage": "#a89c3a",
}
_ROWS = {"decode": 2, "compute": 1, "cpu": 0}
_HEIGHT = 0.72
_HIDDEN = "#2a9d5c"
_EXPOSED = "#d62839"


def draw_lanes(step: StepTimeline, metrics: Mapping[str, Value], path: Path) -> None:
    """Write the picture of one step as PNG.

    ``metrics`` are the step's own row; ``schedule/mode`` and ``seconds/saved`` of it go into the title.
    """
    # No pyplot: it keeps global state and picks a window system; and imported only here, as it takes half a second.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 5.2), layout="constrained")
    FigureCanvasAgg(figure)
    above, lanes = figure.subplots(2, 1, sharex=True, height_ratios=(1, 3.2))
    _draw_batch(above, step)
    _draw_events(lanes, step)
    _legend(figure, step)
    figure.suptitle(_title(step, metrics), x=0.01, ha="left", fontsize=12, fontweight="bold")
    figure.savefig(path, dpi=110)


def _title(step: StepTimeline, metrics: Mapping[str, Value]) -> str:
    hidden, exposed = hidden_seconds(step), exposed_seconds(step)
    share = f" ({hidden / (hidden + exposed):.0%} of compute)" if hidden + exposed else ""
    saved = metrics.get("seconds/saved")
    saved_text = f"saved {saved:.2f} s" if isinstance(saved, float) else "saved: not measured yet"
    mode = metrics.get("schedule/mode", "")
    return (
        f"step {step.step}{f', {mode}' if mode else ''}: {step.seconds:.2f} s   |   hidden {hidden:.2f} s{share}   |   "
        f"exposed {exposed:.2f} s   |   {saved_text}"
    )


def _draw_batch(axes: Any, step: StepTimeline) -> None:
    changes = [(step.start, 0), *batch_changes(step), (step.end, 0)]
    at, batch = [time - step.start for time, _ in changes], [sequences for _, sequences in changes]
    axes.step(at, batch, where="post", color="#3d4a66", linewidth=1.4)
    axes.fill_between(at, batch, step="post", color="#c9d1de", alpha=0.6, linewidth=0)
    axes.set_ylabel("decode batch\n(sequences)", fontsize=9)
    axes.set_ylim(bottom=0)
    _bare(axes)


def _draw_events(axes: Any, step: StepTimeline) -> None:
    for start, end in step.decode_busy:
        axes.axvspan(start - step.start, end - step.start, color="#eef1f6", linewidth=0, zorder=0)
    ends = {id(event): end for event, end in step.decode_turns}
    for lane, row in _ROWS.items():
        events = step.lane(lane)
        # White edges part the work items; hundreds of engine steps or millisecond rewards would be all edge.
        edge = {"edgecolor": "white", "linewidth": 0.5} if lane == "compute" else {"linewidth": 0}
        for kind in dict.fromkeys(event.kind for event in events):
            spans = [
                (event.start - step.start, ends.get(id(event), event.end) - event.start)
                for event in events
                if event.kind == kind
            ]
            low = row - _HEIGHT / 2
            axes.broken_barh(spans, (low, _HEIGHT), facecolor=COLOURS[kind], zorder=2, snap=False, **edge)
    _underline(axes, step)
    _label_wide(axes, step)
    axes.set_yticks(list(_ROWS.values()), list(_ROWS), fontsize=10)
    axes.set_ylim(-0.55, 2.55)
    axes.set_xlim(0, max(step.seconds, 1e-9))
    axes.set_xlabel("seconds since the step began   (shaded: the decode lane is at work)", fontsize=9)
    _bare(axes)


def _underline(axes: Any, step: StepTimeline) -> None:
    """A line under the compute row: hidden or exposed."""
    low = _ROWS["compute"] - _HEIGHT / 2 - 0.11
    compute = step.lane("compute")
    whole = [(event.start - step.start, event.seconds) for event in compute]
    axes.broken_barh(whole, (low, 0.07), facecolor=_EXPOSED, linewidth=0, zorder=2)
    hidden = [
        (max(event.start, start) - step.start, min(event.end, end) - max(event.start, start))
        for event in compute
        for start, end in step.decode_busy
        if start < event.end and event.start < end
    ]
    axes.broken_barh(hidden, (low, 0.07), facecolor=_HIDDEN, linewidth=0, zorder=3)


def _label_wide(axes: Any, step: StepTimeline) -> None:
    """Write a compute item's label into its bar where it fits: about 0.45% of the width a letter."""
    for event in step.lane("compute"):
        if event.seconds > 0.0045 * step.seconds * (len(event.label) + 1):
            colour = "white" if event.kind in ("update", "publish", "actor_suffix") else "black"
            middle = (event.start + event.end) / 2 - step.start
            row = _ROWS["compute"]
            axes.text(middle, row, event.label, ha="center", va="center", fontsize=7.5, color=colour, zorder=3)


def _legend(figure: Any, step: StepTimeline) -> None:
    from matplotlib.patches import Patch

    ran = {event.kind for event in step.events}
    kinds = [kind for kind in (*DECODE_KINDS, *COMPUTE_KINDS, *CPU_KINDS) if kind in ran]
    patches = [Patch(facecolor=COLOURS[kind], label=kind.replace("_", " ")) for kind in kinds]
    patches += [
        Patch(facecolor=_HIDDEN, label="hidden (underline)"),
        Patch(facecolor=_EXPOSED, label="exposed (underline)"),
    ]
    figure.legend(handles=patches, loc="outside right center", frameon=False, fontsize=9)


def _bare(axes: Any) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(labelsize=9)
