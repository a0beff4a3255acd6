"""On-policy distillation: the student's own responses, scored token by token by a teacher.

Generalised knowledge distillation (arXiv 2306.13649) on the student's samples with the reverse KL, its gradient taken
from the sampled token as in K. Lu, "On-Policy Distillation" (Thinking Machines Lab, 2025).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rollplex.algorithms.base import Advantage, Algorithm, Outcome, Scored, Settings, Surrogate
from rollplex.algorithms.ratio import policy_gradient
from rollplex.api.algorithm import OPTIONS


def advantages(outcomes: Sequence[Outcome], settings: Settings) -> list[Advantage]:
    """Nothing that a reward could say: the advantage is the teacher's, by token."""
    return [Advantage((0.0,) * len(outcome.lengths)) for outcome in outcomes]


def surrogate(scored: Scored, settings: Settings) -> Surrogate:
    """-rho A per token with A = log teacher - log student, detached: minus the reverse KL of this token.

    Its expected gradient is that of KL(student || teacher) at each prefix of the response (the on-policy
    objective of arXiv 2306.13649 with D = reverse KL), for one token at a time: a token does not answer for later ones.
    """
    if scored.reference is None:
        raise ValueError("opd distils from a teacher, but no log probabilities of model.reference came")
    return policy_gradient(replace(scored, advantage=(scored.reference - scored.logp).detach()), settings)


ALGORITHM = Algorithm("opd", OPTIONS["opd"], "none", advantages, surrogate)
