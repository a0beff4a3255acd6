"""``spec.training``: how much work a step is, how many there are, and the optimizer."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rollplex.api.base import Items, Section


class OptimizerSpec(Section):
    """AdamW over fp32 masters."""

    learning_rate: float = Field(1e-6, description="Learning rate after the warm-up.", ge=0, le=1)
    weight_decay: float = Field(0.0, description="Decoupled weight decay.", ge=0, le=1)
    betas: Items[Annotated[float, Field(ge=0, lt=1)]] = Field(
        (0.9, 0.95), description="Decay of the first and second moment.", min_length=2, max_length=2
    )
    warmup_steps: int = Field(
        10, description="Steps in which the learning rate grows linearly to its value.", ge=0, le=1000000
    )
    max_grad_norm: float = Field(1.0, description="The gradient's global norm is cut down to this.", gt=0, le=1000000)


class TrainingSpec(Section):
    """Steps: each is one rollout and one update."""

    prompts_per_step: int = Field(
        128, description="Prompts of a step over all ranks; each is answered groupSize times.", ge=1, le=1048576
    )
    steps: int = Field(
        description="The target step; a run that reached it has exit code 0.", examples=[500], ge=1, le=10**7
    )
    micro_batch_tokens: int = Field(
        16384,
        description="Tokens of one forward and backward at most; a longer single sample goes alone.",
        ge=1,
        le=2**24,
    )
    seed: int = Field(1, description="Of data order, sampling and initialisation.", ge=0, le=2**32 - 1)
    max_skipped_updates: int = Field(
        3,
        description=(
            "A step whose loss or gradient is not finite leaves the weights alone; after so many in a row the run "
            "stops (exit code 3). Their rollouts are kept for replay."
        ),
        ge=1,
        le=1000000,
    )
    optimizer: OptimizerSpec = Field(default_factory=OptimizerSpec, description="The update.")
