"""From a batch of prompts to a step's units (pure)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

from rollplex.batch import Prompt
from rollplex.step.work import ACTOR_MEDIA, REFERENCE_MEDIA, SHARED_MEDIA, StepPlan, Unit


def plan_step(
    prompts: Sequence[Prompt],
    group_size: int,
    *,
    share_prefix: bool,
    reference: bool,
    frozen_tower: bool,
    shared_tower: bool,
    advantage: Literal["none", "group", "batch"] = "group",
    skip_zero: bool = False,
    held_media: Collection[str] = (),
) -> StepPlan:
    """Units of a step: one per group, or one per response where prefixes are not shared.

    ``frozen_tower``: the actor's vision and projector take no gradients; ``shared_tower``: and are the reference's too.
    Media names start with whose tower encodes them: ``shared:``, else ``actor:`` and ``reference:``. Without sharing of
    prefixes a name ends with its unit: every response encodes again. ``held_media`` are names whose features an earlier
    step left, still valid. ``advantage`` and ``skip_zero`` are the plan's (:class:`StepPlan`).
    """
    units: list[Unit] = []
    for group, prompt in enumerate(prompts):
        members = tuple(range(group_size))
        for part in [members] if share_prefix else [(member,) for member in members]:
            again = "" if share_prefix else f"#{len(units)}"
            keys = [media.key + again for media in prompt.media]
            actor = SHARED_MEDIA if shared_tower else ACTOR_MEDIA
            other = SHARED_MEDIA if shared_tower else REFERENCE_MEDIA
            units.append(
                Unit(
                    group=group,
                    members=part,
                    # a one-token prompt has an empty prefix
                    split=share_prefix and len(prompt.token_ids) > 1,
                    actor_media=tuple(actor + key for key in keys),
                    reference_media=tuple(other + key for key in keys),
                )
            )
    return StepPlan(
        group_sizes=(group_size,) * len(prompts),
        units=tuple(units),
        reference=reference,
        advantage=advantage,
        skip_zero=skip_zero,
        held_media=frozenset(held_media),
        trained_media=not frozen_tower,
    )
