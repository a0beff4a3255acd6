"""Random batches and their plans, and a step's lanes played out in any order."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection

import torch
from hypothesis import strategies as st

from rollplex.batch import Media, Prompt
from rollplex.step.plan import plan_step
from rollplex.step.progress import Progress
from rollplex.step.schedule import Schedule
from rollplex.step.work import (
    ACTOR_MEDIA,
    REFERENCE_MEDIA,
    SHARED_MEDIA,
    Item,
    Kind,
    StepPlan,
    idle_items,
    waits,
)


def make_media(content: int) -> Media:
    """A medium whose key is a function of ``content``."""
    return Media("image", torch.tensor([float(content)]), (1, 1, 1))


def make_prompt(name: str, tokens: int, *contents: int) -> Prompt:
    """A prompt of ``tokens`` ids; its media only matter by what is in them."""
    media = tuple(make_media(content) for content in contents)
    return Prompt(
        name,
        tuple(range(tokens)),
        torch.zeros(3, tokens, dtype=torch.int64),
        media,
        tuple((at,) for at in range(len(media))),
    )


@st.composite
def plans(draw: st.DrawFn, share_prefix: bool | None = None) -> StepPlan:
    """Plans of up to five groups: media shared or not, one-token prompts, held features, frozen towers."""
    prompts = []
    for group in range(draw(st.integers(1, 5))):
        contents = draw(st.lists(st.integers(0, 3), max_size=2))
        tokens = draw(st.integers(3, 9)) if contents else draw(st.sampled_from([1, 2, 7]))
        prompts.append(make_prompt(f"p{group}", tokens, *contents))
    share = draw(st.booleans()) if share_prefix is None else share_prefix
    frozen = draw(st.booleans())
    shared = frozen and draw(st.booleans())
    keys = sorted({media.key for prompt in prompts for media in prompt.media})
    holdable = [
        owner + key for key in keys for owner in ((SHARED_MEDIA, REFERENCE_MEDIA) if shared else (REFERENCE_MEDIA,))
    ]
    return plan_step(
        prompts,
        draw(st.integers(1, 3)),
        share_prefix=share,
        reference=draw(st.booleans()),
        frozen_tower=frozen,
        shared_tower=shared,
        advantage=draw(st.sampled_from(["none", "group", "batch"])),
        held_media=draw(st.sets(st.sampled_from(holdable))) if share and holdable else (),
    )


def ancestors(graph: dict[Item, set[Item]], item: Item) -> set[Item]:
    """Everything that is complete when ``item`` may start."""
    found: set[Item] = set()
    open_items = [item]
    while open_items:
        for need in graph[open_items.pop()] - found:
            found.add(need)
            open_items.append(need)
    return found


def is_actor_work(item: Item) -> bool:
    """Forward work of the actor alone (features of a frozen tower serve the reference as well)."""
    actor = (Kind.ACTOR_PREFIX, Kind.ACTOR_SUFFIX, Kind.PREFIX_BACKWARD, Kind.ENCODE_BACKWARD)
    return item.kind in actor or (item.kind is Kind.ENCODE and item.media.startswith(ACTOR_MEDIA))


class Play:
    """Plays a step under a schedule: the compute lane does one pass at a time, decodes and rewards end in any order.

    ``on_start`` sees each pass with the progress at its start. ``passes`` are the passes in their order. Groups in
    ``idle`` turn out to have no loss once their advantages are known; ``skipped`` is what then was left out.
    """

    def __init__(
        self,
        plan: StepPlan,
        schedule: Schedule,
        order: random.Random,
        cost: Callable[[Item], int],
        on_start: Callable[[list[Item], Play], None] = lambda items, play: None,
        idle: Collection[int] = (),
    ) -> None:
        self._idle = set(idle)
        self._known_idle: set[int] = set()
        self.skipped: set[Item] = set()
        self.plan = plan
        self.progress = Progress(waits(plan))
        self.passes: list[list[Item]] = []
        self.complete: set[Item] = set()
        self.outside = [item for item in self.progress.ready if item.kind is Kind.DECODE]
        for item in self.outside:
            self.progress.start(item)
        self.outside.sort()
        running: list[Item] = []
        while not self.progress.done:
            if not running:
                running = self._next(schedule, cost)
                if running:
                    self.passes.append(running)
                    on_start(running, self)
                    for item in running:
                        self.progress.start(item)
            assert running or self.outside, f"stuck: {sorted(self.progress.ready)}"
            if self.outside and (not running or order.random() < 0.5):
                self._finish(self.outside.pop(order.randrange(len(self.outside))))
            elif running:
                for item in running:
                    self._finish(item)
                running = []

    def _next(self, schedule: Schedule, cost: Callable[[Item], int]) -> list[Item]:
        advantages = sorted(item for item in self.progress.ready if item.kind is Kind.ADVANTAGE)
        return advantages or schedule.next_pass(self.progress, cost)

    def _finish(self, item: Item) -> None:
        self.progress.complete(item)
        self.complete.add(item)
        if item.kind is Kind.ADVANTAGE and item.index in self._idle:
            self._known_idle.add(item.index)
            left_out = idle_items(self.plan, self._known_idle) & waits(self.plan).keys() - self.complete
            self.progress.skip(left_out)
            self.skipped |= left_out
            self.complete |= left_out
        if item.kind is Kind.DECODE:
            reward = Item(Kind.REWARD, item.index, item.sample)
            self.progress.start(reward)
            self.outside.append(reward)

    def incomplete(self, *kinds: Kind) -> set[Item]:
        return {item for item in waits(self.plan) if item.kind in kinds} - self.complete
