"""Hidden, exposed and saved on timelines whose right values are known; seconds are dyadic, so that sums are exact."""

import threading
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollplex.step.timeline import (
    YARDSTICK_WINDOW,
    Event,
    StepTimeline,
    Timeline,
    Yardstick,
    exposed_by_kind,
    exposed_seconds,
    hidden_by_kind,
    hidden_seconds,
    saved_seconds,
    timeline_metrics,
)
from rollplex.telemetry.events import COMPUTE_KINDS, decode_seconds


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def decode(start: float, end: float, batch: int = 4) -> Event:
    return Event("decode", "decode", "", start, end, tokens=batch, batch=batch)


def compute(kind: str, start: float, end: float, tokens: int = 0) -> Event:
    return Event("compute", kind, "g0", start, end, tokens=tokens)


def step_of(*events: Event, step: int = 1) -> StepTimeline:
    end = max((event.end for event in events), default=0.0)
    return StepTimeline(step, 0.0, end, tuple(sorted(events, key=lambda event: event.start)))


def test_timeline_span_takes_times_from_the_clock_and_sizes_from_the_body() -> None:
    clock = Clock()
    timeline = Timeline(clock)
    clock.now = 2.0
    timeline.start()
    with timeline.span("compute", "ref_prefix", "g1") as span:
        clock.now = 3.5
        span.tokens = 70
    clock.now = 4.0
    assert timeline.finish(7) == StepTimeline(7, 2.0, 4.0, (Event("compute", "ref_prefix", "g1", 2.0, 3.5, 70),))
    clock.now = 5.0
    assert timeline.finish(8) == StepTimeline(8, 4.0, 5.0, ())


def test_timeline_label_says_which_one_and_not_the_kind_again() -> None:
    timeline = Timeline(Clock())
    for label in ("ref_prefix 3", "3, 4", ""):
        timeline.record("compute", "ref_prefix", label, 0, 1)
    assert [event.label for event in timeline.finish(1).events] == ["3", "3, 4", ""]


def test_timeline_span_that_raises_is_no_finished_item() -> None:
    timeline = Timeline(Clock())
    with pytest.raises(RuntimeError, match="boom"), timeline.span("compute", "update", ""):
        raise RuntimeError("boom")
    assert timeline.finish(1).events == ()


def test_timeline_records_from_many_threads_without_loss() -> None:
    timeline = Timeline(Clock())
    begin = threading.Barrier(4)

    def lane(name: int) -> None:
        begin.wait()
        for i in range(2000):
            timeline.record("cpu", "reward", f"{name}.{i}", i, i + 1)

    threads = [threading.Thread(target=lane, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = timeline.finish(1).events
    assert {event.label for event in events} == {f"{name}.{i}" for name in range(4) for i in range(2000)}
    assert [event.start for event in events] == sorted(event.start for event in events)


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (("copy", "update", "", 0, 1), "copy/update is no item .* decode, compute, cpu"),
        (("compute", "decode", "", 0, 1), "compute/decode is no item .* encode, ref_prefix"),
        (("compute", "update", "", 2, 1), "compute/update .* ends at 1, before its start 2"),
        (("decode", "decode", "", 0, 1, 5), "no batch"),
        (("decode", "prefill", "", 0, 1, 0, 5), "no tokens"),
    ],
)
def test_timeline_refuses_what_cannot_be_measured(event: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Timeline(Clock()).record(*event)  # type: ignore[arg-type]


def test_hidden_and_exposed_split_an_item_where_decode_ends() -> None:
    step = step_of(
        decode(0.0, 1.0),
        decode(1.0, 2.0),
        compute("actor_prefix", 0.5, 1.5),  # all under decode
        compute("actor_suffix", 1.75, 2.75),  # a quarter under it
        compute("update", 3.0, 3.5),
    )
    assert hidden_by_kind(step) == {"actor_prefix": 1.0, "actor_suffix": 0.25, "update": 0.0}
    assert exposed_by_kind(step) == {"actor_prefix": 0.0, "actor_suffix": 0.75, "update": 0.5}
    assert (hidden_seconds(step), exposed_seconds(step)) == (1.25, 1.25)


@pytest.mark.parametrize(
    ("seconds", "gap", "busy"),
    [
        (1.0, 0.0625, [(0.0, 1.0), (1.0625, 2.0625)]),  # 6% of the median engine step: the lane waited
        (1.0, 0.03125, [(0.0, 2.03125)]),  # 3%: the lane was at work between the two
        (0.0078125, 0.001953125, [(0.0, 0.017578125)]),  # 25% of a short step, yet under 2 ms
        (0.0078125, 0.00390625, [(0.0, 0.0078125), (0.01171875, 0.01953125)]),
    ],
)
def test_decode_gap_counts_as_work_only_if_short(seconds: float, gap: float, busy: list[tuple[float, float]]) -> None:
    step = step_of(decode(0.0, seconds), decode(seconds + gap, 2 * seconds + gap))
    assert step.decode_busy == busy


def test_saved_is_the_work_alone_minus_what_decode_lost_minus_what_ran_twice() -> None:
    yardstick = Yardstick()
    yardstick.observe(
        step_of(
            *[decode(0.125 * i, 0.125 * (i + 1)) for i in range(8)],  # 0.125 s an engine step
            compute("ref_prefix", 2.0, 3.0, tokens=100),
            compute("update", 3.0, 4.0),
        )
    )
    step = step_of(
        *[decode(0.25 * i, 0.25 * (i + 1)) for i in range(8)],  # 0.25 s each, of which the last two run alone
        compute("ref_prefix", 0.0, 1.5, tokens=100),  # alone: 1 s
        compute("update", 2.0, 3.0),
    )
    lost = 6 * (0.25 - 0.125)
    assert saved_seconds(step, yardstick) == 1.0 - lost
    assert saved_seconds(step, yardstick, recomputed_seconds=0.5) == 1.0 - lost - 0.5  # negative: it cost time


def test_saved_counts_only_the_hidden_fraction_of_an_item() -> None:
    yardstick = Yardstick()
    yardstick.observe(step_of(decode(0.0, 1.0), compute("ref_prefix", 1.0, 2.0, tokens=100)))
    step = step_of(decode(0.0, 1.0), compute("ref_prefix", 0.5, 2.5, tokens=300))  # alone: 3 s; a quarter is hidden
    assert saved_seconds(step, yardstick) == 0.75


def test_saved_charges_decode_for_gaps_that_grew_inside_its_turn() -> None:
    yardstick = Yardstick()
    yardstick.observe(step_of(decode(0.0, 1.0), decode(1.0, 2.0), compute("encode", 2.0, 3.0, tokens=1)))
    step = step_of(decode(0.0, 1.0), decode(1.03125, 2.03125), compute("encode", 0.0, 1.0, tokens=1))
    assert saved_seconds(step, yardstick) == 1.0 - 0.03125


def test_saved_is_unknown_for_work_that_never_ran_alone() -> None:
    under = step_of(decode(0.0, 1.0), compute("ref_prefix", 0.0, 0.5, tokens=10))
    yardstick = Yardstick()
    assert saved_seconds(under, yardstick) is None
    yardstick.observe(under)  # it ran beside decode: nothing to learn
    assert saved_seconds(under, yardstick) is None
    yardstick.observe(step_of(compute("ref_prefix", 0.0, 0.5, tokens=10)))
    assert saved_seconds(under, yardstick) is None  # decode alone is still unknown
    yardstick.observe(step_of(decode(0.0, 1.0)))
    assert saved_seconds(under, yardstick) == 0.5


def test_saved_is_zero_where_nothing_overlapped() -> None:
    serial = step_of(decode(0.0, 1.0), compute("actor_prefix", 1.0, 2.0, tokens=5), compute("update", 2.0, 3.0))
    assert saved_seconds(serial, Yardstick()) == 0.0


@pytest.mark.parametrize(
    ("batch", "alone"),
    [(1, 0.25), (2, 0.25), (3, 0.25), (4, 0.25), (8, 0.25), (16, 1.0), (17, 1.0), (500, 1.0)],
)
def test_yardstick_takes_the_nearest_batch_bucket_and_the_smaller_of_two(batch: int, alone: float) -> None:
    yardstick = Yardstick()
    yardstick.observe(step_of(decode(0.0, 0.25, batch=3), decode(1.0, 2.0, batch=16)))  # buckets 4 and 16
    assert yardstick.alone_seconds(decode(0.0, 9.0, batch=batch)) == alone


def test_yardstick_measures_a_prefill_by_its_tokens_and_apart_from_decode() -> None:
    def prefill(start: float, end: float, tokens: int) -> Event:
        return Event("decode", "prefill", "", start, end, tokens=tokens, batch=4)

    yardstick = Yardstick()
    yardstick.observe(step_of(prefill(0.0, 1.0, 1024), decode(1.0, 1.125), prefill(2.0, 2.25, 8)))
    assert yardstick.alone_seconds(prefill(0.0, 9.0, 2048)) == 2.0
    assert yardstick.alone_seconds(prefill(0.0, 9.0, 7)) == 7 * 0.25 / 8
    assert yardstick.alone_seconds(decode(0.0, 9.0)) == 0.125


def test_yardstick_lets_large_items_outweigh_many_small_ones() -> None:
    yardstick = Yardstick()
    small = [compute("ref_prefix", i, i + 0.5, tokens=2) for i in range(8)]  # 0.25 s a token, 16 tokens together
    yardstick.observe(step_of(*small, compute("ref_prefix", 8.0, 12.0, tokens=64)))  # 0.0625 s a token
    assert yardstick.alone_seconds(compute("ref_prefix", 0.0, 9.0, tokens=32)) == 2.0


def test_timeline_metrics_are_documented_and_leave_saved_open_when_unknown() -> None:
    step = step_of(decode(0.0, 1.0), compute("encode", 0.5, 1.5, tokens=3), compute("publish", 1.5, 2.0))
    assert timeline_metrics(step, Yardstick()) == {
        "seconds/step": 2.0,
        "seconds/decode": 1.0,
        "seconds/hidden": 0.5,
        "seconds/saved": None,
        "seconds/exposed": 1.0,
        "seconds/phase/encode": 1.0,
        "seconds/phase/publish": 0.5,
    }


@st.composite
def timelines(draw: st.DrawFn) -> StepTimeline:
    """Two lanes whose items follow one another with random lengths and gaps, in units of 1/1024 s."""
    ticks = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 400)), max_size=12)
    events = []
    for lane, kinds in (("decode", ("decode",)), ("compute", COMPUTE_KINDS)):
        at = 0
        for gap, length in draw(ticks):
            kind = draw(st.sampled_from(kinds))
            events.append(Event(lane, kind, "", (at + gap) / 1024, (at + gap + length) / 1024, tokens=1, batch=1))
            at += gap + length
    return step_of(*events)


@given(timelines())
def test_hidden_and_exposed_are_all_compute_and_hidden_fits_under_decode(step: StepTimeline) -> None:
    compute_total = sum(Fraction(event.end) - Fraction(event.start) for event in step.lane("compute"))
    assert hidden_seconds(step) + exposed_seconds(step) == compute_total
    assert 0 <= hidden_seconds(step) <= decode_seconds(step)
    assert all(seconds >= 0 for seconds in exposed_by_kind(step).values())
    brute = sum(
        1
        for tick in range(int(step.end * 1024))
        for event in step.lane("compute")
        if event.start <= tick / 1024 < event.end and any(a <= tick / 1024 < b for a, b in step.decode_busy)
    )
    assert hidden_seconds(step) == brute / 1024


@given(timelines())
def test_timeline_survives_its_line_of_json(step: StepTimeline) -> None:
    # 1/1024 s is not a whole number of microseconds, so times are near, everything else is equal
    back = StepTimeline.from_json(step.to_json())
    assert [(e.lane, e.kind, e.label, e.tokens, e.batch) for e in back.events] == [
        (e.lane, e.kind, e.label, e.tokens, e.batch) for e in step.events
    ]
    assert [e.start for e in back.events] == pytest.approx([e.start for e in step.events], abs=1e-6)
    assert [e.end for e in back.events] == pytest.approx([e.end for e in step.events], abs=1e-6)


def test_yardstick_goes_on_learning_and_forgets_what_is_old() -> None:
    yardstick = Yardstick()
    yardstick.observe(step_of(compute("encode", 0.0, 8.0, tokens=8)))
    assert yardstick.alone_seconds(compute("encode", 0.0, 9.0, tokens=1)) == 1.0
    yardstick.observe(step_of(*[compute("encode", i, i + 0.25, tokens=1) for i in range(YARDSTICK_WINDOW)]))
    assert yardstick.alone_seconds(compute("encode", 0.0, 9.0, tokens=1)) == 0.25
