"""``spec.algorithm``: how rewards become a gradient, and which options each algorithm takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar

from pydantic import Field

from rollplex.api.base import Section, WayOut

Number = TypeVar("Number", int | None, float | None)
Normalization = Literal["token", "sequence", "sum", "constant"]
_OWN = "Without it the algorithm's own (docs/algorithms.md)."


@dataclass(frozen=True, slots=True)
class Options:
    """What an algorithm takes of the options below: its own values, from its paper. None: it has no such part."""

    normalization: Normalization
    clip: tuple[float, float] | None = (0.2, 0.2)
    kl: float | None = 0.0
    others: tuple[Normalization, ...] = ("token", "sequence", "sum", "constant")  # normalisations that make sense
    overlong: bool = False


OPTIONS: dict[str, Options] = {
    "grpo": Options("sequence", kl=0.001),
    "dr_grpo": Options("constant", others=("sum", "constant")),
    "gspo": Options("sequence", clip=(3e-4, 4e-4), others=("sequence",)),
    "dapo": Options("token", clip=(0.2, 0.28), overlong=True),
    "cispo": Options("token", clip=(1.0, 0.28)),
    "rloo": Options("sum", clip=None, kl=0.001),
    "reinforce_plus_plus": Options("sequence", kl=0.001),
    "opd": Options("token", clip=None, kl=None),
}
_OVERLONG_SHARE = 5  # the buffer is a fifth of maxTokens: 4,096 of 20,480 in the paper


class KLSpec(Section):
    """The pull towards the reference."""

    coefficient: float | None = Field(
        None,
        description=f"Weight of the KL term in the loss; 0 means no reference model at all. {_OWN}",
        ge=0,
        le=100,
    )
    estimator: Literal["k1", "k2", "k3"] = Field("k3", description="Estimator of the KL from single samples.")


class ClipSpec(Section):
    """Where the importance ratio stops counting: [1 - low, 1 + high]."""

    low: float | None = Field(None, description=f"The ratio is clipped below 1 - low. {_OWN}", gt=0, le=1)
    high: float | None = Field(None, description=f"The ratio is clipped above 1 + high. {_OWN}", gt=0, le=100)


class OverlongSpec(Section):
    """What dapo takes off the rewards of long responses."""

    buffer: int | None = Field(
        None,
        description=(
            "dapo: responses within this many tokens of rollout.maxTokens lose reward, the more the longer; 0: none "
            "do. Without it a fifth of maxTokens."
        ),
        ge=0,
        le=1_000_000,
    )
    penalty: float | None = Field(
        None, description="dapo: what a response of maxTokens loses; without it 1.", ge=0, le=1_000_000
    )


class AlgorithmSpec(Section):
    """Advantages and loss."""

    name: Literal["grpo", "dr_grpo", "gspo", "dapo", "cispo", "rloo", "reinforce_plus_plus", "opd"] = Field(
        "grpo", description="The algorithm; docs/algorithms.md has their formulas."
    )
    group_size: Annotated[
        int,
        Field(ge=2, le=1024),
        WayOut(
            "an advantage is a reward against its group's mean, so a group of one has advantage 0 and learns nothing"
        ),
    ] = Field(8, description="G: responses sampled for one prompt, which share its prefix.")
    normalization: Normalization | None = Field(
        None,
        description=(
            "The loss is a mean over all tokens of the batch (token), over responses of their token means (sequence), "
            f"of their token sums (sum), or of these by rollout.maxTokens (constant). {_OWN}"
        ),
    )
    ratio: Literal["one", "rollout"] = Field(
        "one",
        description=(
            "one: a rollout is used for one update, so the importance ratio is 1 and a clip idle; rollout: the "
            "engine's logprobs are the behaviour policy, against the difference of engine and trainer (bf16)."
        ),
    )
    ratio_cap: float = Field(
        2.0, description="Truncates the importance ratio where ratio is rollout.", ge=1, le=1_000_000
    )
    kl: KLSpec = Field(default_factory=KLSpec, description="KL to the reference.")
    clip: ClipSpec = Field(default_factory=ClipSpec, description="Clipping of the ratio.")
    overlong: OverlongSpec = Field(default_factory=OverlongSpec, description="dapo's over-long penalty.")

    @property
    def kl_coefficient(self) -> float:
        """Weight of the KL term, the algorithm's own where the job is silent."""
        given = self.kl.coefficient
        return (OPTIONS[self.name].kl or 0.0) if given is None else given

    @property
    def needs_reference(self) -> bool:
        """Whether a second model is loaded: for the KL, or as opd's teacher."""
        return self.kl_coefficient > 0 or self.name == "opd"

    def filled(self, max_tokens: int) -> AlgorithmSpec:
        """The same section with the algorithm's own values spelled out; ``max_tokens`` is the longest response."""
        own = OPTIONS[self.name]
        low, high = own.clip or (None, None)
        buffer, penalty = (max_tokens // _OVERLONG_SHARE, 1.0) if own.overlong else (None, None)
        return self.model_copy(
            update={
                "normalization": self.normalization or own.normalization,
                "kl": self.kl.model_copy(update={"coefficient": _first(self.kl.coefficient, own.kl)}),
                "clip": ClipSpec(low=_first(self.clip.low, low), high=_first(self.clip.high, high)),
                "overlong": OverlongSpec(
                    buffer=_first(self.overlong.buffer, buffer), penalty=_first(self.overlong.penalty, penalty)
                ),
            }
        )


def _first(given: Number, own: Number) -> Number:
    return own if given is None else given
