"""Group sequence policy optimisation (arXiv 2507.18071)."""

from __future__ import annotations

import torch

from rollplex.algorithms.base import Algorithm, Scored, Settings, Surrogate
from rollplex.algorithms.grpo import advantages
from rollplex.algorithms.ratio import clipped_by
from rollplex.api.algorithm import OPTIONS


def surrogate(scored: Scored, settings: Settings) -> Surrogate:
    """-min(s A, clip(s) A) with one ratio per response, s = exp(mean over its tokens of log rho) (equations 5 and 7).

    Each token carries its response's number; weighed by 1 / length they add up to it once.
    """
    # response by response: a scatter-add would add in any order on a GPU
    parts = (scored.logp - scored.behaviour).split(scored.lengths)
    log_ratio = torch.cat([part.mean().expand(part.numel()) for part in parts])
    return clipped_by(log_ratio, scored.advantage, settings)


# Advantages as GRPO's (equation 6).
ALGORITHM = Algorithm("gspo", OPTIONS["gspo"], "group", advantages, surrogate)
