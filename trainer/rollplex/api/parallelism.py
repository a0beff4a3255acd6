"""``spec.parallelism``: tensor degrees; replicas and data parallel follow from the number of ranks."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rollplex.api.base import Section


class TrainParallelismSpec(Section):
    """The trainer's layout."""

    tensor: int = Field(1, description="Ranks that share one copy of the model in training.", ge=1, le=64)


class RolloutParallelismSpec(Section):
    """The engine's layout."""

    tensor: int = Field(1, description="Ranks that share one engine.", ge=1, le=64)
    ranks: int | None = Field(
        None,
        description="Ranks that only roll out; needs placement disaggregated, training gets the others.",
        ge=1,
        le=65536,
    )


class ParallelismSpec(Section):
    """Which ranks do what."""

    train: TrainParallelismSpec = Field(default_factory=TrainParallelismSpec, description="Of training.")
    rollout: RolloutParallelismSpec = Field(default_factory=RolloutParallelismSpec, description="Of rollout.")
    placement: Literal["colocated", "disaggregated"] = Field(
        "colocated", description="Rollout and training on the same ranks, or (a baseline) on different ones."
    )
