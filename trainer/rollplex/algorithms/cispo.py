"""Clipped importance-sampling-weight policy optimisation (MiniMax-M1, arXiv 2506.13585)."""

from __future__ import annotations

from rollplex.algorithms.base import Algorithm, Scored, Settings, Surrogate
from rollplex.algorithms.grpo import advantages
from rollplex.api.algorithm import OPTIONS


def surrogate(scored: Scored, settings: Settings) -> Surrogate:
    """-sg(clip(rho, 1 - low, 1 + high)) A log pi per token (equations 4 and 5).

    The weight is clipped, not the token: each one keeps a gradient. Low is 1 by default, so that there is no lower
    bound, as in the paper's experiments.
    """
    ratio = (scored.logp - scored.behaviour).detach().exp()
    weight = ratio.clamp(max=settings.cap).clamp(1.0 - settings.clip_low, 1.0 + settings.clip_high)
    outside = (ratio < 1.0 - settings.clip_low) | (ratio > 1.0 + settings.clip_high)
    return Surrogate(-weight * scored.advantage * scored.logp, ratio, outside.float())


# Advantages as GRPO's (equation 2); a mean over all tokens (equation 4).
ALGORITHM = Algorithm("cispo", OPTIONS["cispo"], "group", advantages, surrogate)
