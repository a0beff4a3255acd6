"""The simulated step: the real graph on a clock of costs."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollplex.planner.cost import Cost
from rollplex.planner.simulate import simulate, step_plan
from rollplex.step.work import Kind, waits
from rollplex.telemetry.events import compute_seconds, decode_seconds, exposed_seconds, hidden_seconds
from tests.unit.planner.workloads import hardware, workload

MODES = ("serial", "overlap", "stream")
sizes = st.fixed_dictionaries(
    {
        "prompts": st.sampled_from([4, 8, 32]),
        "group_size": st.integers(1, 4),
        "prompt_tokens": st.integers(1, 3000),
        "response_tokens": st.integers(1, 200),
        "reference": st.booleans(),
        "trained_tower": st.booleans(),
        "share_prefix": st.booleans(),
        "run_ahead": st.none() | st.integers(1, 4),
        "train_tensor": st.sampled_from([1, 2, 4]),
        "rollout_tensor": st.sampled_from([1, 2, 4]),
    }
)


@settings(deadline=None, max_examples=60)
@given(sizes, st.sampled_from(MODES), st.floats(0.05, 1.0))
def test_every_item_runs_once_and_no_lane_overlaps_itself(changes: dict[str, Any], mode: str, share: float) -> None:
    work = workload(**changes)
    device = hardware(decode_share=share)
    step = simulate(work, Cost(work, device), device, mode if work.share_prefix else "serial")
    ran = Counter(event.kind for event in step.lane("compute"))
    graph = Counter(item.kind.value for item in waits(step_plan(work)))
    for kind in (Kind.ENCODE, Kind.REF_PREFIX, Kind.ACTOR_PREFIX, Kind.PREFIX_BACKWARD, Kind.UPDATE, Kind.PUBLISH):
        assert ran[kind.value] == graph[kind.value]
    for lane in ("decode", "compute"):
        events = step.lane(lane)
        assert all(b.start >= a.end - 1e-9 for a, b in pairwise(events))
    tokens = sum(work.response_lengths(work.groups * work.group_size))
    assert sum(event.batch for event in step.lane("decode")) == tokens


def test_serial_is_decode_then_compute() -> None:
    work, device = workload(), hardware()
    step = simulate(work, Cost(work, device), device, "serial")
    assert step.seconds == pytest.approx(decode_seconds(step) + sum(compute_seconds(step).values()))
    assert hidden_seconds(step) == 0


def test_lanes_that_never_compete_cost_only_what_is_exposed() -> None:
    work, device = workload(), hardware(decode_share=1e-9)
    cost = Cost(work, device)
    serial = simulate(work, cost, device, "serial")
    for mode in ("overlap", "stream"):
        step = simulate(work, cost, device, mode)
        prefill = sum(event.seconds for event in serial.lane("decode") if event.kind == "prefill")
        # prompts are read at full price on either lane
        assert step.seconds <= decode_seconds(serial) + exposed_seconds(step) + prefill + 1e-6
        assert step.seconds < serial.seconds


@pytest.mark.parametrize("share", [0.19, 0.5, 1.0])
def test_both_lanes_at_once_are_as_fast_as_the_share_says(share: float) -> None:
    # no prompt to speak of: all engine steps decode
    work = workload(prompt_tokens=2, media_tokens=0, response_tokens=200, reference=True)
    device = hardware(decode_share=share)
    cost = Cost(work, device)
    alone = decode_seconds(simulate(work, cost, device, "serial"))
    step = simulate(work, cost, device, "stream")
    together = decode_seconds(step) - hidden_seconds(step)
    slowed = hidden_seconds(step) / (1 + share)
    assert together + slowed == pytest.approx(alone, rel=1e-3)


def test_stream_is_never_slower_than_overlap_nor_overlap_than_serial_where_decode_leaves_room() -> None:
    device = hardware(decode_share=0.2)
    for tokens in (300, 1000, 3000):
        work = workload(prompt_tokens=tokens, media_tokens=tokens - 100)
        cost = Cost(work, device)
        serial, overlap, stream = (simulate(work, cost, device, mode).seconds for mode in MODES)
        assert stream <= overlap * 1.001 <= serial * 1.001


def test_fewer_graphs_ahead_take_longer() -> None:
    work, device = workload(), hardware(decode_share=0.2)
    cost = Cost(work, device)
    seconds = [simulate(replace(work, run_ahead=n), cost, device, "overlap").seconds for n in (1, 4, 16)]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[0] > seconds[-1]


def test_response_lengths_are_seeded_and_keep_the_median() -> None:
    work = workload(response_tokens=100, max_response_tokens=150)
    lengths = work.response_lengths(101)
    assert sorted(lengths)[50] == 100
    assert max(lengths) == 150
    assert lengths == work.response_lengths(101) != replace(work, seed=2).response_lengths(101)
