"""Groups without a loss: what is left out, that nothing else is, and that no schedule minds."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollplex.algorithms.base import Advantage, Outcome
from rollplex.step.executor import Executor
from rollplex.step.plan import plan_step
from rollplex.step.progress import Progress
from rollplex.step.schedule import Schedule
from rollplex.step.timeline import Timeline
from rollplex.step.work import Item, Kind, StepPlan, idle_items, waits
from tests.unit.step.doubles import OneByOne, Rewards, Watched
from tests.unit.step.plans import Play, make_media, make_prompt, plans
from tests.unit.step.test_schedule import costs, decoded, run_all_that_may_start, schedules

any_order = settings(max_examples=60, deadline=None)  # a shared machine may stop for a second
OF_UNITS = (Kind.REF_PREFIX, Kind.REF_SUFFIX, Kind.ACTOR_PREFIX, Kind.ACTOR_SUFFIX, Kind.PREFIX_BACKWARD)
LANES = (Kind.DECODE, Kind.REWARD, Kind.ADVANTAGE)


def draw_idle(data: st.DataObject, plan: StepPlan) -> set[int]:
    return data.draw(st.sets(st.integers(0, len(plan.group_sizes) - 1)))


@any_order
@given(plans(), st.data())
def test_idle_is_what_only_idle_groups_need(plan: StepPlan, data: st.DataObject) -> None:
    groups = draw_idle(data, plan)
    idle = idle_items(plan, groups)
    graph = waits(plan)
    for item, needs in graph.items():
        if item.kind in OF_UNITS:
            assert (item in idle) == (plan.units[item.index].group in groups)
        elif item.kind in (Kind.ENCODE, Kind.ENCODE_BACKWARD):
            of_units = {reader for reader, of in graph.items() if item in of} if item.kind is Kind.ENCODE else needs
            assert (item in idle) == all(reader in idle for reader in of_units if reader.kind in OF_UNITS)
        else:
            assert item not in idle


@any_order
@given(st.data(), schedules(), st.randoms(use_true_random=False), st.integers(0, 5))
def test_no_schedule_gets_stuck_and_no_suffix_of_an_idle_group_runs(
    data: st.DataObject, schedule: Schedule, order: random.Random, seed: int
) -> None:
    plan = data.draw(plans(share_prefix=None if schedule.mode == "serial" else True))
    groups = draw_idle(data, plan)

    def look(items: list[Item], play: Play) -> None:
        started = {i.index for ran in play.passes for i in ran if i.kind is Kind.ACTOR_PREFIX}
        freed = {i.index for i in play.complete if i.kind is Kind.PREFIX_BACKWARD}
        assert len(started - freed) <= schedule.run_ahead

    play = Play(plan, schedule, order, costs(seed), look, groups)
    ran = [item for items in play.passes for item in items]
    assert len(ran) == len(set(ran))
    assert not set(ran) & play.skipped
    assert set(ran) | play.skipped == {item for item in waits(plan) if item.kind not in (Kind.DECODE, Kind.REWARD)}
    late = (Kind.ACTOR_SUFFIX, Kind.PREFIX_BACKWARD)
    assert not [item for item in ran if item.kind in late and plan.units[item.index].group in groups]
    assert play.skipped <= idle_items(plan, groups)
    assert play.progress.live_graphs == 0


@any_order
@given(
    plans(share_prefix=True),
    st.sampled_from([("serial", False), ("overlap", False), ("stream", True)]),
    st.randoms(use_true_random=False),
    st.data(),
)
def test_gradients_are_added_in_one_order_whatever_is_skipped_when(
    plan: StepPlan, kind: tuple[str, bool], order: random.Random, data: st.DataObject
) -> None:
    groups = draw_idle(data, plan)
    schedule = Schedule(kind[0], run_ahead=2, pack_tokens=30, deterministic=kind[1])

    def adding() -> list[list[Item]]:
        # suffixes and prefixes add to the language model, encodes to the tower: these two may change places
        passes = Play(plan, schedule, order, costs(1), idle=groups).passes
        language = [items for items in passes if items[0].kind in (Kind.ACTOR_SUFFIX, Kind.PREFIX_BACKWARD)]
        return language + [items for items in passes if items[0].kind is Kind.ENCODE_BACKWARD]

    first = adding()
    for _ in range(3):
        assert adding() == first


@pytest.mark.parametrize("late", [False, True])
def test_a_shared_mediums_backward_keeps_its_turn(late: bool) -> None:
    """Groups 0 and 2 read one medium, and 2 turns out idle, early or late: the tower's gradients are added the same."""
    prompts = [make_prompt("a", 4, 1), make_prompt("b", 4, 2), make_prompt("c", 4, 1)]
    plan = plan_step(prompts, 1, share_prefix=True, reference=False, frozen_tower=False, shared_tower=False)
    progress, schedule = Progress(waits(plan)), Schedule("stream", 3, pack_tokens=9, deterministic=True)
    ran: list[Item] = []
    for group in (0, 1, 2) if late else (2, 0, 1):
        decoded(progress, group, 1)
        if group == 2:
            progress.skip(idle_items(plan, {2}))
        ran += run_all_that_may_start(progress, schedule)
    assert progress.done
    backwards = [item.media.partition(":")[2] for item in ran if item.kind is Kind.ENCODE_BACKWARD]
    assert backwards == [make_media(2).key, make_media(1).key]


PROMPTS = [make_prompt("a", 4, 1), make_prompt("b", 5, 2), make_prompt("c", 4, 1), make_prompt("d", 1)]
GROUP = 2
ZERO = {0, 1}  # what the algorithm of these tests says


def run(mode: str, *, skip_zero: bool = True, filtered: Sequence[int] = (), reference: bool = False) -> Executor:
    plan = plan_step(
        PROMPTS,
        GROUP,
        share_prefix=True,
        reference=reference,
        frozen_tower=False,
        shared_tower=False,
        skip_zero=skip_zero,
    )

    def advantages(outcomes: Sequence[Outcome]) -> list[Advantage]:
        found = []
        for outcome in outcomes:
            group = outcome.lengths[0] - 1  # the double's responses are group + sample + 1 tokens long
            values = (0.0, 0.0) if group in ZERO else (1.0, -1.0)
            found.append(Advantage(values, counts=group not in filtered))
        return found

    executor = Executor(
        plan,
        Schedule(mode, run_ahead=4, pack_tokens=4),
        PROMPTS,
        Watched(plan),  # type: ignore[arg-type]
        OneByOne(plan.group_sizes, order=1),
        Rewards(),
        Timeline(),
        advantages,
    )
    executor.run(lambda kind: None)
    return executor


def ran(executor: Executor, *kinds: Kind) -> set[int]:
    compute: Watched = executor._compute  # type: ignore[assignment]
    return {item.index for item in compute.ran if item.kind in kinds}


@pytest.mark.parametrize("mode", ["serial", "overlap", "stream"])
def test_the_executor_leaves_out_what_zero_advantages_make_idle(mode: str) -> None:
    executor = run(mode)
    assert executor.state.skipped == {0, 1}
    assert executor.state.filtered == set()
    assert ran(executor, Kind.ACTOR_SUFFIX) == {2, 3}
    assert ran(executor, Kind.PREFIX_BACKWARD) == {2}  # the one-token prompt has none
    compute: Watched = executor._compute  # type: ignore[assignment]
    encoded = {item.media.partition(":")[2] for item in compute.ran if item.kind is Kind.ENCODE}
    backward = {item.media.partition(":")[2] for item in compute.ran if item.kind is Kind.ENCODE_BACKWARD}
    assert backward == {make_media(1).key}  # group 2 reads it too
    if mode == "serial":  # nothing had begun when the advantages came
        assert ran(executor, Kind.ACTOR_PREFIX) == {2}
        assert encoded == {make_media(1).key}
    assert {Item(Kind.PREFIX_BACKWARD, 0), Item(Kind.PREFIX_BACKWARD, 1)} <= compute.dropped
    assert len(executor.state.responses) == len(executor.state.scores) == len(PROMPTS) * GROUP
    assert executor.state.advantages[0] == (0.0, 0.0)


def test_nothing_is_left_out_where_zero_advantages_are_not_all_there_is() -> None:
    executor = run("serial", skip_zero=False)
    assert executor.state.skipped == set()
    assert ran(executor, Kind.ACTOR_SUFFIX) == {0, 1, 2, 3}


@pytest.mark.parametrize("mode", ["serial", "overlap", "stream"])
def test_a_filtered_group_costs_nothing_even_with_a_kl(mode: str) -> None:
    executor = run(mode, skip_zero=False, filtered=[1, 2], reference=True)
    assert executor.state.skipped == executor.state.filtered == {1, 2}
    assert ran(executor, Kind.ACTOR_SUFFIX) == {0, 3}
    if mode == "serial":
        assert ran(executor, Kind.REF_SUFFIX) == {0, 3}
        assert ran(executor, Kind.REF_PREFIX) == {0}


def slow(text: str) -> float:
    time.sleep(0.01)
    return float(text)


@pytest.mark.parametrize("mode", ["serial", "overlap", "stream"])
def test_an_advantage_that_needs_no_reward_waits_for_none(mode: str) -> None:
    """Suffixes of distillation run while rewards are still computed, but the update waits for them."""
    plan = plan_step(
        PROMPTS, GROUP, share_prefix=True, reference=False, frozen_tower=True, shared_tower=True, advantage="none"
    )
    seen: list[Outcome] = []

    def advantages(outcomes: Sequence[Outcome]) -> list[Advantage]:
        seen.extend(outcomes)
        return [Advantage((0.0,) * GROUP) for _ in outcomes]

    finished: list[Kind] = []
    rewards = Rewards(threads=1, score=slow)
    executor = Executor(
        plan,
        Schedule(mode, run_ahead=4, pack_tokens=4),
        PROMPTS,
        Watched(plan),  # type: ignore[arg-type]
        OneByOne(plan.group_sizes),
        rewards,
        Timeline(),
        advantages,
    )

    def finish(kind: Kind) -> None:
        assert len(executor.state.scores) == len(PROMPTS) * GROUP
        finished.append(kind)

    executor.run(finish)
    rewards.close()
    assert finished == [Kind.UPDATE, Kind.PUBLISH]
    assert sorted(outcome.lengths for outcome in seen) == [(1, 2), (2, 3), (3, 4), (4, 5)]
    assert all(outcome.rewards == () for outcome in seen)
