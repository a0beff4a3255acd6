"""``spec.algorithm``: how rewards become a gradient."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rollplex.api.base import Section, WayOut


class KLSpec(Section):
    """The pull towards the reference."""

    coefficient: float = Field(
        0.001, description="Weight of the KL term in the loss; 0 means no reference model at all.", ge=0, le=100
    )
    estimator: Literal["k1", "k2", "k3"] = Field("k3", description="Estimator of the KL from single samples.")


class ClipSpec(Section):
    """Where the probability ratio stops counting: [1 - low, 1 + high]."""

    low: float = Field(0.2, description="The ratio is clipped below 1 - low.", gt=0, le=1)
    high: float = Field(0.2, description="The ratio is clipped above 1 + high.", gt=0, le=100)


class AlgorithmSpec(Section):
    """Advantages and loss."""

    name: Literal["grpo", "dr_grpo", "gspo", "dapo", "cispo", "rloo", "reinforce_plus_plus", "opd"] = Field(
        "grpo", description="The algorithm."
    )
    group_size: Annotated[
        int,
        Field(ge=2, le=1024),
        WayOut(
            "an advantage is a reward against its group's mean, so a group of one has advantage 0 and learns nothing"
        ),
    ] = Field(8, description="G: responses sampled for one prompt, which share its prefix.")
    normalization: Literal["token", "sequence"] = Field(
        "token", description="The loss is a mean over all tokens of the batch, or over sequences of their token means."
    )
    ratio: Literal["one", "rollout"] = Field(
        "one",
        description=(
            "one: a rollout is used for one update, so the ratio is 1 there; rollout: the engine's logprobs are the "
            "behaviour policy (truncated importance sampling)."
        ),
    )
    kl: KLSpec = Field(default_factory=KLSpec, description="KL to the reference.")
    clip: ClipSpec = Field(default_factory=ClipSpec, description="Clipping of the ratio.")
