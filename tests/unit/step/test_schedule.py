"""Schedules: what they forbid, what they must not forbid, and that none of them gets stuck."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollplex.step.plan import plan_step
from rollplex.step.progress import Progress
from rollplex.step.schedule import Schedule
from rollplex.step.work import Item, Kind, StepPlan, waits
from tests.unit.step.plans import Play, is_actor_work, make_prompt, plans

REFERENCE = (Kind.REF_PREFIX, Kind.REF_SUFFIX)
SUFFIXES = (Kind.REF_SUFFIX, Kind.ACTOR_SUFFIX)
any_order = settings(max_examples=60, deadline=None)  # a shared machine may stop for a second
ADDS_GRADIENTS = (Kind.ACTOR_SUFFIX, Kind.PREFIX_BACKWARD, Kind.ENCODE_BACKWARD)


def costs(seed: int) -> Callable[[Item], int]:
    """Input tokens by unit, from none to more than a pack holds."""
    return lambda item: random.Random(seed * 1000 + item.index).choice([0, 3, 10, 25, 120])


@st.composite
def schedules(draw: st.DrawFn, *modes: str) -> Schedule:
    return Schedule(
        draw(st.sampled_from(modes or ("serial", "overlap", "stream"))),
        run_ahead=draw(st.integers(1, 4)),
        pack_tokens=draw(st.sampled_from([1, 30, 1000])),
        deterministic=draw(st.booleans()),
    )


def shared_plans(schedule: Schedule) -> st.SearchStrategy[StepPlan]:
    """Prefixes that are not shared need mode serial (a rule of the job)."""
    return plans(share_prefix=None if schedule.mode == "serial" else True)


@any_order
@given(st.data(), schedules(), st.randoms(use_true_random=False), st.integers(0, 5))
def test_no_order_of_finishing_gets_a_schedule_stuck(
    data: st.DataObject, schedule: Schedule, order: random.Random, seed: int
) -> None:
    play = Play(data.draw(shared_plans(schedule)), schedule, order, costs(seed))
    done = [item for items in play.passes for item in items]
    outside = (Kind.DECODE, Kind.REWARD)
    assert sorted(done) == sorted(item for item in waits(play.plan) if item.kind not in outside)


@any_order
@given(plans(share_prefix=False), st.integers(1, 4), st.randoms(use_true_random=False))
def test_without_sharing_no_more_samples_than_run_ahead_hold_their_medias_graphs(
    plan: StepPlan, run_ahead: int, order: random.Random
) -> None:
    media_of = {name: index for index, unit in enumerate(plan.units) for name in unit.actor_media}

    def look(items: list[Item], play: Play) -> None:
        encoded = {
            media_of[i.media] for done in play.passes for i in done if i.kind is Kind.ENCODE and i.media in media_of
        }
        ended = {i.index for i in play.complete if i.kind is Kind.ACTOR_SUFFIX}
        if plan.trained_media:
            assert len(encoded - ended) <= run_ahead

    Play(plan, Schedule("serial", run_ahead, pack_tokens=100), order, costs(1), look)


@any_order
@given(st.data(), schedules(), st.randoms(use_true_random=False), st.integers(0, 5))
def test_no_more_units_than_run_ahead_hold_a_graph(
    data: st.DataObject, schedule: Schedule, order: random.Random, seed: int
) -> None:
    held: list[int] = []

    def look(items: list[Item], play: Play) -> None:
        started = {i.index for items in play.passes for i in items if i.kind is Kind.ACTOR_PREFIX}
        freed = {i.index for i in play.complete if i.kind is Kind.PREFIX_BACKWARD}
        held.append(len(started - freed))
        assert play.progress.live_graphs <= schedule.run_ahead

    plan = data.draw(shared_plans(schedule))
    Play(plan, schedule, order, costs(seed), look)
    assert max(held) <= schedule.run_ahead
    split = sum(unit.split for unit in plan.units)
    if schedule.mode == "serial":  # the bound is used, too: nothing keeps prefixes from running ahead
        assert max(held) == min(schedule.run_ahead, split)


@any_order
@given(st.data(), schedules(), st.randoms(use_true_random=False), st.integers(0, 5))
def test_packs_hold_suffixes_of_one_kind_within_the_budget(
    data: st.DataObject, schedule: Schedule, order: random.Random, seed: int
) -> None:
    cost = costs(seed)
    for items in Play(data.draw(shared_plans(schedule)), schedule, order, cost).passes:
        if items[0].kind is Kind.ADVANTAGE:
            continue
        assert len({item.kind for item in items}) == 1
        assert items == sorted(items)
        assert len(items) == 1 or items[0].kind in SUFFIXES
        assert len(items) == 1 or sum(map(cost, items)) <= schedule.pack_tokens
        assert len(items) == 1 or not schedule.deterministic


@any_order
@given(plans(), schedules("serial"), st.randoms(use_true_random=False))
def test_serial_goes_phase_after_phase(plan: StepPlan, schedule: Schedule, order: random.Random) -> None:
    def look(items: list[Item], play: Play) -> None:
        if items[0].kind is Kind.ADVANTAGE:
            return
        assert not play.incomplete(Kind.DECODE, Kind.REWARD), f"{items[0]} under decode"
        if is_actor_work(items[0]):
            assert not play.incomplete(*REFERENCE), f"{items[0]} before the reference is done"

    Play(plan, schedule, order, costs(0), look)


@any_order
@given(plans(share_prefix=True), schedules("overlap"), st.randoms(use_true_random=False))
def test_overlap_runs_no_suffix_under_decode(plan: StepPlan, schedule: Schedule, order: random.Random) -> None:
    def look(items: list[Item], play: Play) -> None:
        if items[0].kind in SUFFIXES:
            assert not play.incomplete(Kind.DECODE), f"{items[0]} under decode"

    Play(plan, schedule, order, costs(0), look)


def run_all_that_may_start(progress: Progress, schedule: Schedule) -> list[Item]:
    """Everything that the compute lane gets done before another lane delivers."""
    done: list[Item] = []
    while items := schedule.next_pass(progress, lambda item: 1):
        for item in items:
            progress.start(item)
        for item in items:
            progress.complete(item)
        done += items
    return done


def decoded(progress: Progress, group: int, members: int) -> None:
    """A group's responses and rewards come in, and its advantages."""
    for i in range(members):
        for kind in (Kind.DECODE, Kind.REWARD):
            progress.start(Item(kind, group, i))
            progress.complete(Item(kind, group, i))
    progress.start(Item(Kind.ADVANTAGE, group))
    progress.complete(Item(Kind.ADVANTAGE, group))


@pytest.mark.parametrize("mode", ["serial", "overlap", "stream"])
def test_what_runs_under_decode(mode: str) -> None:
    """Two groups of two; the second group's responses come first."""
    prompts = [make_prompt("a", 4, 1), make_prompt("b", 4, 2)]
    plan = plan_step(prompts, 2, share_prefix=True, reference=True, frozen_tower=False, shared_tower=False)
    progress, schedule = Progress(waits(plan)), Schedule(mode, run_ahead=2, pack_tokens=100)
    at_once = {item.kind for item in run_all_that_may_start(progress, schedule)}
    decoded(progress, 1, 2)
    early = run_all_that_may_start(progress, schedule)
    decoded(progress, 0, 2)
    late = run_all_that_may_start(progress, schedule)
    assert progress.done
    prefixes = {Kind.ENCODE, Kind.REF_PREFIX, Kind.ACTOR_PREFIX}
    assert at_once == (set() if mode == "serial" else prefixes)
    second = [Item(kind, 1) for kind in (Kind.REF_SUFFIX, Kind.ACTOR_SUFFIX, Kind.PREFIX_BACKWARD)]
    # only stream works on a finished group, down to the features' gradients, while another decodes
    assert early[:3] == (second if mode == "stream" else [])
    assert len(early) == (4 if mode == "stream" else 0)
    assert Item(Kind.ACTOR_SUFFIX, 0) in late


@pytest.mark.parametrize("reference", [True, False])
def test_serial_with_frozen_tower_encodes_for_whoever_comes_first(reference: bool) -> None:
    plan = plan_step(
        [make_prompt("a", 4, 1)], 2, share_prefix=True, reference=reference, frozen_tower=True, shared_tower=True
    )
    progress, schedule = Progress(waits(plan)), Schedule("serial", run_ahead=1, pack_tokens=100)
    assert run_all_that_may_start(progress, schedule) == []
    decoded(progress, 0, 2)
    kinds = [item.kind for item in run_all_that_may_start(progress, schedule)]
    first = [Kind.ENCODE, *(REFERENCE if reference else ())]
    assert kinds == [
        *first, Kind.ACTOR_PREFIX, Kind.ACTOR_SUFFIX, Kind.PREFIX_BACKWARD, Kind.UPDATE, Kind.PUBLISH,
    ]  # fmt: skip


def adding_order(plan: StepPlan, schedule: Schedule, order: random.Random) -> list[list[Item]]:
    return [items for items in Play(plan, schedule, order, costs(1)).passes if items[0].kind in ADDS_GRADIENTS]


@any_order
@given(
    plans(share_prefix=True),
    st.sampled_from([("serial", False), ("overlap", False), ("stream", True)]),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
def test_gradients_are_added_in_one_order_whatever_finishes_first(
    plan: StepPlan, kind: tuple[str, bool], run_ahead: int, order: random.Random
) -> None:
    """serial and overlap are reproducible as they are, stream with ``deterministic``; packs do not change either."""
    schedule = Schedule(kind[0], run_ahead, pack_tokens=30, deterministic=kind[1])
    first = adding_order(plan, schedule, order)
    assert first == adding_order(plan, schedule, order)
    if schedule.deterministic:
        suffixes = [items for items in first if items[0].kind is Kind.ACTOR_SUFFIX]
        assert suffixes == [[Item(Kind.ACTOR_SUFFIX, index)] for index in range(len(plan.units))]


def test_a_pack_takes_what_fits_and_a_large_unit_goes_alone() -> None:
    prompts = [make_prompt(name, 3) for name in "abcd"]
    plan = plan_step(prompts, 1, share_prefix=True, reference=False, frozen_tower=True, shared_tower=True)
    tokens = {0: 60, 1: 40, 2: 1, 3: 500}
    for budget, packs in [
        (100, [[0, 1], [2], [3]]),
        (60, [[0], [1, 2], [3]]),
        (10_000, [[0, 1, 2, 3]]),
        (1, [[0], [1], [2], [3]]),
    ]:
        progress, schedule = Progress(waits(plan)), Schedule("stream", run_ahead=4, pack_tokens=budget)
        run_all_that_may_start(progress, schedule)
        for group in range(4):
            decoded(progress, group, 1)
        found = []
        while not progress.all_complete(Kind.ACTOR_SUFFIX):
            items = schedule.next_pass(progress, lambda item: tokens[item.index])
            for item in items:
                progress.start(item)
                progress.complete(item)
            if items[0].kind is Kind.ACTOR_SUFFIX:
                found.append([item.index for item in items])
        assert found == packs, budget


@pytest.mark.parametrize("mode", ["serial", "overlap", "stream"])
def test_backwards_go_first_then_prefixes_that_may(mode: str) -> None:
    """What frees memory goes before what takes it; suffixes wait for prefixes that ``runAhead`` lets start."""
    prompts = [make_prompt("a", 3), make_prompt("b", 3), make_prompt("c", 3)]
    plan = plan_step(prompts, 1, share_prefix=True, reference=False, frozen_tower=True, shared_tower=True)
    progress, schedule = Progress(waits(plan)), Schedule(mode, run_ahead=2, pack_tokens=1)
    for group in range(3):
        decoded(progress, group, 1)
    order = [item.kind for item in run_all_that_may_start(progress, schedule)]
    one = [Kind.ACTOR_SUFFIX, Kind.PREFIX_BACKWARD]
    assert order[:9] == [Kind.ACTOR_PREFIX, Kind.ACTOR_PREFIX, *one, Kind.ACTOR_PREFIX, *one, *one]


def test_scheduling_a_large_step_costs_little() -> None:
    """128 groups of 8, the most that wait at once: the lock is held meanwhile, and decode waits for it."""
    prompts = [make_prompt(str(group), 4, group) for group in range(128)]
    plan = plan_step(prompts, 8, share_prefix=True, reference=True, frozen_tower=False, shared_tower=False)
    progress, schedule = Progress(waits(plan)), Schedule("stream", 128, pack_tokens=1000, deterministic=True)
    before = time.process_time()
    for group in reversed(range(128)):  # the suffix that must go first becomes ready last
        decoded(progress, group, 8)
        run_all_that_may_start(progress, schedule)
    assert progress.done
    assert time.process_time() - before < 3.0


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="choose from serial, overlap, stream"):
        Schedule("fast", run_ahead=1, pack_tokens=1)
