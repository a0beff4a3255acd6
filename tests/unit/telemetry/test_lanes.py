"""The picture and the trace of a step, and the worked example of docs/overlap.md."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest
from matplotlib.image import imread

from rollplex.step.timeline import Yardstick, saved_seconds
from rollplex.telemetry.events import KINDS, Event, StepTimeline, batch_changes
from rollplex.telemetry.lanes import COLOURS, draw_lanes
from rollplex.telemetry.trace import chrome_trace

DOCS = Path(__file__).parents[3] / "docs"

STEP = StepTimeline(
    5,
    10.0,
    14.0,
    (
        Event("decode", "prefill", "", 10.0, 10.5, tokens=900, batch=8),
        Event("compute", "ref_prefix", "g0", 10.0, 11.0, tokens=300),
        Event("decode", "decode", "", 10.5, 11.0, tokens=8, batch=8),
        Event("decode", "decode", "", 11.0, 11.5, tokens=4, batch=4),
        Event("decode", "decode", "", 12.0, 12.5, tokens=4, batch=4),
        Event("cpu", "reward", "g0.0", 12.5, 12.75),
        Event("compute", "update", "", 13.0, 14.0),
    ),
)


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("overlap_example", DOCS / "overlap_example.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_batch_changes_fall_to_zero_where_decode_waits() -> None:
    assert batch_changes(STEP) == [(10.0, 8), (11.0, 4), (11.5, 0), (12.0, 4), (12.5, 0)]


def test_trace_has_every_item_on_its_lane_in_microseconds() -> None:
    trace = json.loads(chrome_trace([STEP]))["traceEvents"]
    rows = {event["tid"]: event["args"]["name"] for event in trace if event["name"] == "thread_name"}
    slices = [(rows[e["tid"]], e["name"], e["ts"], e["dur"], e["args"]) for e in trace if e["ph"] == "X"]
    assert slices == [
        ("steps", "step 5", 0.0, 4e6, {}),
        ("decode", "prefill", 0.0, 5e5, {"tokens": 900, "batch": 8}),
        ("decode", "decode", 5e5, 5e5, {"tokens": 8, "batch": 8}),
        ("decode", "decode", 1e6, 5e5, {"tokens": 4, "batch": 4}),
        ("decode", "decode", 2e6, 5e5, {"tokens": 4, "batch": 4}),
        ("compute", "ref_prefix g0", 0.0, 1e6, {"tokens": 300}),
        ("compute", "update", 3e6, 1e6, {}),
        ("cpu", "reward g0.0", 2.5e6, 2.5e5, {}),
    ]
    assert [(e["ts"], e["args"]["sequences"]) for e in trace if e["ph"] == "C"] == [
        (0.0, 8),
        (1e6, 4),
        (1.5e6, 0),
        (2e6, 4),
        (2.5e6, 0),
    ]


def test_trace_gives_items_that_overlap_rows_of_their_own() -> None:
    spans = [(0.0, 3.0), (1.0, 2.0), (1.5, 4.0), (2.0, 5.0), (3.0, 6.0)]
    step = StepTimeline(1, 0.0, 6.0, tuple(Event("cpu", "reward", f"{at}", *span) for at, span in enumerate(spans)))
    trace = json.loads(chrome_trace([step]))["traceEvents"]
    rows = {event["tid"]: event["args"]["name"] for event in trace if event["name"] == "thread_name"}
    assert {e["name"]: rows[e["tid"]] for e in trace if e.get("cat") == "reward"} == {
        "reward 0": "cpu",
        "reward 1": "cpu 2",
        "reward 2": "cpu 3",
        "reward 3": "cpu 2",
        "reward 4": "cpu",
    }


def test_trace_of_several_steps_keeps_their_distance() -> None:
    later = StepTimeline(6, 20.0, 21.0, ())
    trace = json.loads(chrome_trace([STEP, later]))["traceEvents"]
    assert [(e["name"], e["ts"]) for e in trace if e.get("cat") == "step"] == [("step 5", 0.0), ("step 6", 1e7)]


def test_colours_tell_every_kind_apart() -> None:
    assert set(COLOURS) == {kind for kinds in KINDS.values() for kind in kinds}
    assert len(set(COLOURS.values())) == len(COLOURS)


def test_picture_shows_each_kind_that_ran_and_no_other(tmp_path: Path) -> None:
    draw_lanes(STEP, {"schedule/mode": "stream", "seconds/saved": 0.5}, tmp_path / "lanes.png")
    pixels = (imread(tmp_path / "lanes.png")[..., :3] * 255).round().astype(int).reshape(-1, 3)
    drawn = {f"#{r:02x}{g:02x}{b:02x}" for r, g, b in pixels.tolist()}
    ran = {event.kind for event in STEP.events}
    assert {kind for kind, colour in COLOURS.items() if colour in drawn} == ran


@pytest.mark.parametrize("events", [(), (Event("compute", "update", "", 0.0, 0.0),)])
def test_picture_of_a_step_in_which_next_to_nothing_ran(tmp_path: Path, events: tuple[Event, ...]) -> None:
    draw_lanes(StepTimeline(1, 0.0, 0.0, events), {}, tmp_path / "lanes.png")
    assert (tmp_path / "lanes.png").stat().st_size > 0


def test_overlap_page_has_the_numbers_that_its_example_gives(example: ModuleType) -> None:
    page = (DOCS / "overlap.md").read_text()
    assert example.BEGIN + example.numbers() + example.END in page, "run: python docs/overlap_example.py"


def test_saved_estimates_what_the_example_gains_over_serial(example: ModuleType) -> None:
    serial, stream = example.example("serial"), example.example("stream")
    yardstick = Yardstick()
    yardstick.observe(serial)
    saved = saved_seconds(stream, yardstick)
    assert saved == pytest.approx(serial.seconds - stream.seconds, rel=0.05)
