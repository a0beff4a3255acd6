"""The worked example of overlap.md: `python docs/overlap_example.py` rewrites its numbers and docs/overlap.png."""

from __future__ import annotations

from pathlib import Path

from rollplex.step.timeline import Timeline, Yardstick, timeline_metrics
from rollplex.telemetry.events import StepTimeline, compute_seconds, exposed_by_kind, hidden_by_kind
from rollplex.telemetry.lanes import draw_lanes

PAGE = Path(__file__).with_name("overlap.md")
BEGIN, END = "<!-- numbers: begin -->\n", "<!-- numbers: end -->\n"

# Seconds that an item takes alone, and its tokens: 4 groups of 8 responses over prompts of 1,000 tokens.
ITEMS = {
    "encode": (0.06, 900),
    "ref_prefix": (0.15, 1000),
    "actor_prefix": (0.16, 1000),
    "ref_suffix": (0.05, 400),
    "actor_suffix": (0.15, 400),
    "prefix_backward": (0.30, 1000),
    "encode_backward": (0.24, 3600),
    "update": (0.20, 0),
    "publish": (0.06, 0),
}
PREFIX = ("encode", "ref_prefix", "actor_prefix")
SUFFIX = ("ref_suffix", "actor_suffix", "prefix_backward")
END_OF_STEP = ("encode_backward", "update", "publish")
# The engine steps' batches: group 0 has its responses after 50 of them, group 1 after 90, 2 after 140, 3 after 220.
GROUP_ENDS = (50, 90, 140, 220)
BATCHES = [8 * sum(index < end for end in GROUP_ENDS) for index in range(GROUP_ENDS[-1])]
PREFILL_SECONDS, PREFILL_TOKENS = 0.3, 4000
SCORING_SECONDS = 0.02
UNDER_DECODE = 1.25  # beside decode a compute item takes this much longer than alone,
UNDER_COMPUTE = 1.2  # and beside compute an engine step this much longer


def example(mode: str) -> StepTimeline:
    """The step laid out second by second under ``serial`` or ``stream``: two lanes that slow each other down."""
    timeline = Timeline(clock=lambda: 0.0)
    engine = [("prefill", PREFILL_SECONDS, PREFILL_TOKENS, 32)]
    engine += [("decode", 0.012 + 0.0002 * batch, batch, batch) for batch in BATCHES]
    last = GROUP_ENDS[-1]
    # kind, label, engine steps that must be over first (the prefill is one)
    work = [(kind, f"g{group}", last + 1 if mode == "serial" else 0) for group in range(4) for kind in PREFIX]
    for group, end in enumerate(GROUP_ENDS):
        work += [(kind, f"g{group}", 1 + (last if mode == "serial" else end)) for kind in SUFFIX]
    work += [(kind, "", last + 1) for kind in END_OF_STEP]

    now, scored = 0.0, {0: 0.0}
    decoded = computed = 0  # items done on either lane
    decode_start = compute_start = 0.0
    decode_left, compute_left = engine[0][1], ITEMS[work[0][0]][0]
    while computed < len(work):
        decoding = decoded < len(engine)
        ready = scored.get(work[computed][2], float("inf"))
        computing = ready <= now
        if not decoding and not computing:
            now = compute_start = ready
            continue
        decode_end = decode_left * (UNDER_COMPUTE if computing else 1.0) if decoding else float("inf")
        compute_end = compute_left * (UNDER_DECODE if decoding else 1.0) if computing else float("inf")
        wake = ready - now if not computing else float("inf")
        passed = min(decode_end, compute_end, wake)
        now += passed
        decode_left -= passed / (UNDER_COMPUTE if computing else 1.0) if decoding else 0.0
        compute_left -= passed / (UNDER_DECODE if decoding else 1.0) if computing else 0.0
        if passed == wake:
            compute_start = now
        if passed == compute_end:
            kind, label, _ = work[computed]
            timeline.record("compute", kind, label, compute_start, now, tokens=ITEMS[kind][1])
            computed, compute_start = computed + 1, now
            compute_left = ITEMS[work[computed][0]][0] if computed < len(work) else 0.0
        if passed == decode_end:
            kind, _, tokens, batch = engine[decoded]
            timeline.record("decode", kind, "", decode_start, now, tokens=tokens, batch=batch)
            decoded, decode_start = decoded + 1, now
            decode_left = engine[decoded][1] if decoded < len(engine) else 0.0
            if decoded - 1 in GROUP_ENDS:
                label = f"g{GROUP_ENDS.index(decoded - 1)}"
                timeline.record("cpu", "reward", label, now, now + SCORING_SECONDS)
                scored[decoded] = now + SCORING_SECONDS
    step = 1 if mode == "serial" else 2
    return StepTimeline(step, 0.0, now, timeline.finish(step).events)


def numbers() -> str:
    """The example's numbers as the Markdown between the page's marks."""
    alone, step = example("serial"), example("stream")
    yardstick = Yardstick()
    yardstick.observe(alone)
    hidden, exposed = hidden_by_kind(step), exposed_by_kind(step)
    rows = [
        f"| {kind.replace('_', ' ')} | {seconds:.2f} | {hidden[kind]:.2f} | {exposed[kind]:.2f} |"
        for kind, seconds in compute_seconds(step).items()
    ]
    total = timeline_metrics(step, yardstick)
    rows.append(
        f"| **all compute** | {sum(compute_seconds(step).values()):.2f} | **{total['seconds/hidden']:.2f}** "
        f"| **{total['seconds/exposed']:.2f}** |"
    )
    return "\n".join(
        [
            "| seconds | on the compute lane | hidden | exposed |",
            "| --- | --- | --- | --- |",
            *rows,
            "",
            f"Saved: **{total['seconds/saved']:.2f} s** of {total['seconds/hidden']:.2f} s hidden. The step took "
            f"{step.seconds:.2f} s; the same work phase after phase takes {alone.seconds:.2f} s.",
            "",
        ]
    )


def main() -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(before + BEGIN + numbers() + END + after)
    yardstick = Yardstick()
    yardstick.observe(example("serial"))
    step = example("stream")
    saved = timeline_metrics(step, yardstick)["seconds/saved"]
    assert saved is not None
    draw_lanes(step, {"schedule/mode": "stream", "seconds/saved": saved}, PAGE.with_suffix(".png"))


if __name__ == "__main__":
    main()
