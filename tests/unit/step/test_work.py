"""The work items of a step: what each waits for (DESIGN's table), and that any order of finishing gets through."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollplex.step.plan import plan_step
from rollplex.step.progress import Progress
from rollplex.step.work import Item, Kind, StepPlan, waits
from tests.unit.step.plans import ancestors, make_media, make_prompt, plans

any_plan = settings(max_examples=60, deadline=None)  # a shared machine may stop for a second


def encodes(plan: StepPlan, names: tuple[str, ...]) -> set[Item]:
    return {Item(Kind.ENCODE, media=name) for name in names if name not in plan.held_media}


def decodes(plan: StepPlan, *groups: int) -> set[Item]:
    return {Item(Kind.DECODE, group, i) for group in groups for i in range(plan.group_sizes[group])}


def rewards(plan: StepPlan, *groups: int) -> set[Item]:
    return {Item(Kind.REWARD, group, i) for group in groups for i in range(plan.group_sizes[group])}


@any_plan
@given(plans())
def test_every_item_waits_for_what_design_says(plan: StepPlan) -> None:
    graph = waits(plan)
    everyone = range(len(plan.group_sizes))
    for item, needs in graph.items():
        match item.kind:
            case Kind.DECODE | Kind.ENCODE:  # the snapshot is published: true before the step begins
                assert needs == set()
            case Kind.REWARD:
                assert needs == {Item(Kind.DECODE, item.index, item.sample)}
            case Kind.ADVANTAGE:
                by_scope = {
                    "none": decodes(plan, item.index),
                    "group": rewards(plan, item.index),
                    "batch": rewards(plan, *everyone),
                }
                assert needs == by_scope[plan.advantage]
            case Kind.REF_PREFIX:
                assert needs == encodes(plan, plan.units[item.index].reference_media)
            case Kind.ACTOR_PREFIX:
                assert needs == encodes(plan, plan.units[item.index].actor_media)
            case Kind.PREFIX_BACKWARD:
                assert needs == {Item(Kind.ACTOR_SUFFIX, item.index)}
            case Kind.PUBLISH:
                assert needs == {Item(Kind.UPDATE)}


@any_plan
@given(plans())
def test_suffixes_wait_for_prefix_responses_and_scores(plan: StepPlan) -> None:
    graph = waits(plan)
    for index, unit in enumerate(plan.units):
        own = {Item(Kind.DECODE, unit.group, member) for member in unit.members}
        suffix = Item(Kind.ACTOR_SUFFIX, index)
        before = encodes(plan, unit.actor_media)
        assert before <= ancestors(graph, suffix)
        if unit.split:
            assert Item(Kind.ACTOR_PREFIX, index) in graph[suffix]
        assert own <= graph[suffix]
        assert Item(Kind.ADVANTAGE, unit.group) in graph[suffix]
        reference = Item(Kind.REF_SUFFIX, index)
        assert (reference in graph) == plan.reference
        if plan.reference:
            assert reference in graph[suffix]
            assert own <= graph[reference]
            assert encodes(plan, unit.reference_media) <= ancestors(graph, reference)
            assert (Item(Kind.REF_PREFIX, index) in graph[reference]) == unit.split
            # scoring by the reference needs no reward and no other group
            assert not {i for i in ancestors(graph, reference) if i.kind in (Kind.REWARD, Kind.ADVANTAGE)}
        others = {i for i in ancestors(graph, suffix) if i.kind is Kind.DECODE and i.index != unit.group}
        assert plan.advantage == "batch" or not others


@any_plan
@given(plans())
def test_unsplit_units_have_no_prefix_items(plan: StepPlan) -> None:
    graph = waits(plan)
    for index, unit in enumerate(plan.units):
        for kind in (Kind.ACTOR_PREFIX, Kind.PREFIX_BACKWARD):
            assert (Item(kind, index) in graph) == unit.split
        assert (Item(Kind.REF_PREFIX, index) in graph) == (unit.split and plan.reference)


@any_plan
@given(plans())
def test_media_are_encoded_once_and_held_ones_not_at_all(plan: StepPlan) -> None:
    graph = waits(plan)
    found = [item.media for item in graph if item.kind is Kind.ENCODE]
    wanted = {name for unit in plan.units for name in unit.actor_media}
    if plan.reference:
        wanted |= {name for unit in plan.units for name in unit.reference_media}
    assert sorted(found) == sorted(wanted - plan.held_media)


@any_plan
@given(plans())
def test_a_mediums_backward_waits_for_all_that_read_it(plan: StepPlan) -> None:
    graph = waits(plan)
    readers: dict[str, set[Item]] = {}
    for index, unit in enumerate(plan.units):
        last = Item(Kind.PREFIX_BACKWARD if unit.split else Kind.ACTOR_SUFFIX, index)
        for name in unit.actor_media if plan.trained_media else ():
            readers.setdefault(name, set()).add(last)
    assert {item.media: graph[item] for item in graph if item.kind is Kind.ENCODE_BACKWARD} == readers


@any_plan
@given(plans())
def test_the_update_waits_for_everything(plan: StepPlan) -> None:
    graph = waits(plan)
    assert ancestors(graph, Item(Kind.UPDATE)) == graph.keys() - {Item(Kind.UPDATE), Item(Kind.PUBLISH)}


def turn(graph: dict[Item, set[Item]], item: Item) -> tuple[int, Item]:
    """Unit order; a medium's backward comes with the last unit that reads it."""
    return (max(need.index for need in graph[item]) if item.kind is Kind.ENCODE_BACKWARD else 0, item)


def opens(plan: StepPlan, item: Item) -> list[int]:
    """Units whose graph may begin with an item."""
    if item.kind is Kind.ENCODE and plan.trained_media:
        return [index for index, unit in enumerate(plan.units) if item.media in unit.actor_media]
    return [item.index] if item.kind is Kind.ACTOR_PREFIX else []


def first_without(units: list[int], opened: set[int], ended: set[int]) -> set[int]:
    """The first that has not ended, if it has no graph yet."""
    unit = next((unit for unit in units if unit not in ended), None)
    return set() if unit is None or unit in opened else {unit}


def ended_units(plan: StepPlan, complete: set[Item]) -> set[int]:
    """Units whose last item but their media's backward is complete."""
    return {
        index
        for index, unit in enumerate(plan.units)
        if Item(Kind.PREFIX_BACKWARD if unit.split else Kind.ACTOR_SUFFIX, index) in complete
    }


@any_plan
@given(plans(), st.randoms(use_true_random=False))
def test_any_order_of_finishing_gets_through(plan: StepPlan, order: random.Random) -> None:
    graph = waits(plan)
    progress = Progress(graph)
    complete: set[Item] = set()
    running: list[Item] = []
    opened: set[int] = set()
    while not progress.done:
        assert progress.ready == {i for i in graph if graph[i] <= complete} - complete - set(running)
        for kind in Kind:
            left = sorted((i for i in graph if i.kind is kind and i not in complete), key=lambda i: turn(graph, i))
            assert progress.next_of(kind) == (left[0] if left else None)
            assert progress.all_complete(kind) == (not left)
        assert progress.live_graphs == len(opened - ended_units(plan, complete))
        if progress.ready and (not running or order.random() < 0.5):
            item = order.choice(sorted(progress.ready))
            progress.start(item)
            running.append(item)
            opened |= first_without(opens(plan, item), opened, ended_units(plan, complete))
        else:
            item = running.pop(order.randrange(len(running)))
            progress.complete(item)
            complete.add(item)
    assert complete == graph.keys()
    assert not progress.ready


def test_an_item_that_is_not_ready_cannot_start() -> None:
    progress = Progress(
        waits(
            plan_step(
                [make_prompt("p", 3)], 2, share_prefix=True, reference=False, frozen_tower=True, shared_tower=True
            )
        )
    )
    with pytest.raises(KeyError):
        progress.start(Item(Kind.UPDATE))
    progress.start(Item(Kind.ACTOR_PREFIX, 0))
    with pytest.raises(KeyError):
        progress.start(Item(Kind.ACTOR_PREFIX, 0))


@pytest.mark.parametrize(
    ("frozen", "shared", "actor", "reference"),
    [
        (False, False, "actor:", "reference:"),
        (True, True, "shared:", "shared:"),
        (True, False, "actor:", "reference:"),
    ],
    ids=["trained tower", "frozen tower", "frozen tower, another reference"],
)
def test_a_plan_names_media_by_whose_tower_encodes_them(frozen: bool, shared: bool, actor: str, reference: str) -> None:
    prompts = [make_prompt("a", 4, 1, 2), make_prompt("b", 4, 1)]
    plan = plan_step(prompts, 3, share_prefix=True, reference=True, frozen_tower=frozen, shared_tower=shared)
    one, two = make_media(1).key, make_media(2).key
    assert [unit.actor_media for unit in plan.units] == [(actor + one, actor + two), (actor + one,)]
    assert [unit.reference_media for unit in plan.units] == [(reference + one, reference + two), (reference + one,)]
    assert [(unit.group, unit.members, unit.split) for unit in plan.units] == [
        (0, (0, 1, 2), True),
        (1, (0, 1, 2), True),
    ]
    assert plan.group_sizes == (3, 3)
    assert plan.trained_media == (not frozen)


def test_without_sharing_every_response_brings_its_prompt_and_encodes_again() -> None:
    plan = plan_step(
        [make_prompt("a", 4, 1), make_prompt("b", 4, 1)],
        2,
        share_prefix=False,
        reference=True,
        frozen_tower=True,
        shared_tower=True,
    )
    assert [(unit.group, unit.members, unit.split) for unit in plan.units] == [
        (0, (0,), False), (0, (1,), False), (1, (0,), False), (1, (1,), False),
    ]  # fmt: skip
    names = [name for unit in plan.units for name in unit.actor_media]
    assert len(set(names)) == 4
    assert sum(item.kind is Kind.ENCODE for item in waits(plan)) == 4  # the towers agree, so one serves both models


def test_a_one_token_prompt_has_no_prefix() -> None:
    plan = plan_step(
        [make_prompt("a", 1), make_prompt("b", 2)],
        2,
        share_prefix=True,
        reference=False,
        frozen_tower=False,
        shared_tower=False,
    )
    assert [unit.split for unit in plan.units] == [False, True]
    assert plan.units[0].members == (0, 1)


def test_the_same_medium_twice_in_a_prompt_is_one_encode() -> None:
    plan = plan_step(
        [make_prompt("a", 4, 5, 5)], 2, share_prefix=True, reference=False, frozen_tower=False, shared_tower=False
    )
    graph = waits(plan)
    assert len(plan.units[0].actor_media) == 2
    assert sum(item.kind is Kind.ENCODE for item in graph) == 1
    assert sum(item.kind is Kind.ENCODE_BACKWARD for item in graph) == 1


def test_items_are_named_for_people() -> None:
    assert str(Item(Kind.DECODE, 3, 1)) == "decode 3.1"
    assert str(Item(Kind.ACTOR_SUFFIX, 3)) == "actor_suffix 3"
    assert str(Item(Kind.ENCODE, media="actor:0123456789abcdef")) == "encode actor:0123456789a"


def test_a_batch_advantage_waits_for_the_last_reward_of_the_batch() -> None:
    plan = plan_step(
        [make_prompt("a", 2), make_prompt("b", 2)],
        2,
        share_prefix=True,
        reference=False,
        frozen_tower=True,
        shared_tower=True,
    )
    alone, batch = waits(plan), waits(replace(plan, advantage="batch"))
    assert alone[Item(Kind.ADVANTAGE, 0)] == rewards(plan, 0)
    assert batch[Item(Kind.ADVANTAGE, 0)] == rewards(plan, 0, 1)
    assert decodes(plan, 1) <= ancestors(batch, Item(Kind.ACTOR_SUFFIX, 0))
