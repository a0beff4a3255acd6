"""The README's picture: `python docs/readme_picture.py` rewrites docs/idea.svg, from the example of overlap.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from overlap_example import example

from rollplex.telemetry.events import COMPUTE_KINDS, DECODE_KINDS
from rollplex.telemetry.lanes import COLOURS

PICTURE = Path(__file__).with_name("idea.svg")
GROUP, PREFIX, RESPONSES = 8, 30.0, (3.0, 5.0, 2.0, 4.5, 3.5, 2.5, 6.0, 3.0)
PROMPT, RESPONSE, TEXT = "#8fc1ea", "#3f8fd2", "#3d4a66"


def draw() -> Figure:
    """Above: which tokens go through the actor for one group. Below: one step's lanes, phase by phase and streamed."""
    figure = Figure(figsize=(11, 6.8), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    tokens, lanes = figure.subfigures(2, 1, height_ratios=(1, 1.55))
    each, shared = tokens.subplots(1, 2, sharex=True, sharey=True)
    _draw_tokens(each, "Usual: the prompt goes through the model with every answer", shared=False)
    _draw_tokens(shared, "Rollplex: once for all answers; each reads its keys and values", shared=True)
    tokens.legend(
        handles=[Patch(color=PROMPT, label="prompt: video and question"), Patch(color=RESPONSE, label="answers")],
        loc="outside lower center",
        ncols=2,
        frameon=False,
        fontsize=9,
    )
    serial, stream = lanes.subplots(2, 1, sharex=True)
    end = _draw_lanes(serial, "serial")
    _draw_lanes(stream, "stream")
    serial.set_xlim(0, end)
    lanes.legend(
        handles=[Patch(color=COLOURS[kind], label=kind.replace("_", " ")) for kind in (*DECODE_KINDS, *COMPUTE_KINDS)],
        loc="outside lower center",
        ncols=6,
        frameon=False,
        fontsize=9,
    )
    stream.set_xlabel("seconds (the example of docs/overlap.md)", fontsize=9, color=TEXT)
    return figure


def _draw_tokens(axes: Any, title: str, *, shared: bool) -> None:
    for row, length in enumerate(RESPONSES):
        if not shared:
            axes.barh(row, PREFIX, height=0.75, color=PROMPT)
        axes.barh(row, length, left=PREFIX, height=0.75, color=RESPONSE)
    if shared:
        axes.barh((GROUP - 1) / 2, PREFIX - 2, height=0.75, color=PROMPT)
        for row in range(GROUP):
            axes.plot((PREFIX - 2, PREFIX), ((GROUP - 1) / 2, row), color=PROMPT, linewidth=1)
    axes.set_title(title, fontsize=10, loc="left", color=TEXT)
    axes.invert_yaxis()
    axes.axis("off")


def _draw_lanes(axes: Any, mode: str) -> float:
    """One step; returns where it ends."""
    step = example(mode)
    for kind in DECODE_KINDS:  # engine steps one after another: one bar of each kind
        spans = [event for event in step.lane("decode") if event.kind == kind]
        seconds = spans[-1].end - spans[0].start
        axes.barh(1, seconds, left=spans[0].start, height=0.72, color=COLOURS[kind])
    for event in step.lane("compute"):
        colour = COLOURS[event.kind]
        axes.barh(0, event.seconds, left=event.start, height=0.72, color=colour, edgecolor="white", linewidth=0.4)
    axes.axvline(step.seconds, color=TEXT, linewidth=1)
    title = {"serial": "serial: phase after phase", "stream": "stream: compute under decode, group by group"}[mode]
    axes.set_title(f"{title}, {step.seconds:.1f} s a step", fontsize=10, loc="left", color=TEXT)
    axes.set_yticks((1, 0), ("rollout decodes", "reference, actor"), fontsize=9)
    axes.tick_params(length=0, labelsize=9, labelcolor=TEXT)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    return step.seconds


def main() -> None:
    matplotlib.rcParams["svg.hashsalt"] = "rollplex"  # the same picture is the same file
    draw().savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
