"""Work items of a step and what each waits for (pure).

A *unit* is what the compute lane works on: one prefix and the responses that read it. With shared prefixes a unit is a
group; without (``sharePrefix: false``) every response is a unit of its own, brings its prompt along, and encodes its
media again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

# The name of what is encoded says whose tower does it; a frozen one that is also the reference's is shared.
ACTOR_MEDIA, REFERENCE_MEDIA, SHARED_MEDIA = "actor:", "reference:", "shared:"


class Kind(StrEnum):
    """Work items by DESIGN's names."""

    DECODE = "decode"
    REWARD = "reward"
    ADVANTAGE = "advantage"
    ENCODE = "encode"
    REF_PREFIX = "ref_prefix"
    REF_SUFFIX = "ref_suffix"
    ACTOR_PREFIX = "actor_prefix"
    ACTOR_SUFFIX = "actor_suffix"
    PREFIX_BACKWARD = "prefix_backward"
    ENCODE_BACKWARD = "encode_backward"
    UPDATE = "update"
    PUBLISH = "publish"


@dataclass(frozen=True, slots=True, order=True)
class Item:
    """One piece of work: ``index`` is a group (decode, reward, advantage) or a unit, ``media`` what is encoded."""

    kind: Kind
    index: int = 0
    sample: int = 0
    media: str = ""

    def __str__(self) -> str:
        if self.media:
            return f"{self.kind} {self.media[:17]}"
        return f"{self.kind} {self.index}" + (f".{self.sample}" if self.kind in (Kind.DECODE, Kind.REWARD) else "")


@dataclass(frozen=True)
class Unit:
    """``group`` and the ``members`` of it; ``split``: the prefix is a pass of its own (else the whole prompt is)."""

    group: int
    members: tuple[int, ...]
    split: bool
    actor_media: tuple[str, ...] = ()  # what must be encoded by the actor's tower, by name
    reference_media: tuple[str, ...] = ()


@dataclass(frozen=True)
class StepPlan:
    """What there is to do in a step."""

    group_sizes: tuple[int, ...]
    units: tuple[Unit, ...]
    reference: bool  # the KL needs reference log probabilities
    # what advantages wait for: their group's rewards, the whole batch's, or (no reward says anything) responses alone
    advantage: Literal["none", "group", "batch"] = "group"
    skip_zero: bool = False  # a group whose advantages are all zero leaves no gradient: nothing else is in the loss
    held_media: frozenset[str] = field(default_factory=frozenset)  # encoded in an earlier step, still valid
    trained_media: bool = True  # the actor's tower or projector takes gradients


def waits(plan: StepPlan) -> dict[Item, set[Item]]:
    """Every item of the step, with the items that must be complete before it starts."""
    graph: dict[Item, set[Item]] = {}
    rewards: list[Item] = []
    for group, size in enumerate(plan.group_sizes):
        for sample in range(size):
            graph[Item(Kind.DECODE, group, sample)] = set()
            graph[Item(Kind.REWARD, group, sample)] = {Item(Kind.DECODE, group, sample)}
            rewards.append(Item(Kind.REWARD, group, sample))
    for group in range(len(plan.group_sizes)):
        if plan.advantage == "batch":
            needs = set(rewards)
        else:
            kind = Kind.REWARD if plan.advantage == "group" else Kind.DECODE
            needs = {Item(kind, group, sample) for sample in range(plan.group_sizes[group])}
        graph[Item(Kind.ADVANTAGE, group)] = needs
    for index, unit in enumerate(plan.units):
        if plan.reference:
            _add_pass(graph, plan, index, unit, unit.reference_media, Kind.REF_PREFIX, Kind.REF_SUFFIX)
        suffix = _add_pass(graph, plan, index, unit, unit.actor_media, Kind.ACTOR_PREFIX, Kind.ACTOR_SUFFIX)
        graph[suffix].add(Item(Kind.ADVANTAGE, unit.group))
        if plan.reference:
            graph[suffix].add(Item(Kind.REF_SUFFIX, index))
        last = suffix
        if unit.split:
            last = Item(Kind.PREFIX_BACKWARD, index)
            graph[last] = {suffix}
        if plan.trained_media:
            for media in unit.actor_media:
                graph.setdefault(Item(Kind.ENCODE_BACKWARD, media=media), set()).add(last)
    # rewards too: an advantage need not wait for them, but a reward that fails must fail the step before its update
    graph[Item(Kind.UPDATE)] = set(graph)
    graph[Item(Kind.PUBLISH)] = {Item(Kind.UPDATE)}
    return graph


def _add_pass(
    graph: dict[Item, set[Item]],
    plan: StepPlan,
    index: int,
    unit: Unit,
    media: Sequence[str],
    prefix_kind: Kind,
    suffix_kind: Kind,
) -> Item:
    encodes = {Item(Kind.ENCODE, media=name) for name in media if name not in plan.held_media}
    for encode in encodes:
        graph.setdefault(encode, set())
    suffix = Item(suffix_kind, index)
    graph[suffix] = {Item(Kind.DECODE, unit.group, sample) for sample in unit.members}
    if unit.split:
        prefix = Item(prefix_kind, index)
        graph[prefix] = encodes
        graph[suffix].add(prefix)
    else:
        graph[suffix] |= encodes
    return suffix


def idle_items(plan: StepPlan, groups: Collection[int]) -> set[Item]:
    """Items that nobody needs once these groups have no loss: their passes, and the encodes that only they read."""
    found: set[Item] = set()
    readers: dict[str, set[int]] = {}
    idle = {index for index, unit in enumerate(plan.units) if unit.group in groups}
    for index, unit in enumerate(plan.units):
        for name in {*unit.actor_media, *(unit.reference_media if plan.reference else ())}:
            readers.setdefault(name, set()).add(index)
        if index in idle:
            found |= {Item(kind, index) for kind in _OF_UNIT}
    for name, units in readers.items():
        if units <= idle:
            found |= {Item(Kind.ENCODE, media=name), Item(Kind.ENCODE_BACKWARD, media=name)}
    return found


_OF_UNIT = (Kind.REF_PREFIX, Kind.REF_SUFFIX, Kind.ACTOR_PREFIX, Kind.ACTOR_SUFFIX, Kind.PREFIX_BACKWARD)
