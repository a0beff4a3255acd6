"""Algorithms by name, and a job's choice among them."""

from __future__ import annotations

from rollplex.algorithms import cispo, dapo, dr_grpo, grpo, gspo, opd, reinforce_plus_plus, rloo
from rollplex.algorithms.base import Algorithm, Settings
from rollplex.api.job import JobSpec

ALGORITHMS: dict[str, Algorithm] = {
    module.ALGORITHM.name: module.ALGORITHM
    for module in (grpo, dr_grpo, gspo, dapo, cispo, rloo, reinforce_plus_plus, opd)
}


def chosen(spec: JobSpec) -> tuple[Algorithm, Settings]:
    """The job's algorithm, and its settings."""
    given = spec.algorithm.filled(spec.rollout.max_tokens)
    algorithm = ALGORITHMS[given.name]
    # an algorithm without a clip or a KL of its own never asks for it
    return algorithm, Settings(
        normalization=given.normalization or algorithm.options.normalization,
        clip_low=given.clip.low or 0.0,
        clip_high=given.clip.high or 0.0,
        cap=given.ratio_cap,
        kl_coefficient=given.kl.coefficient or 0.0,
        # the teacher's KL is reported by the estimator whose gradient is taken
        kl_estimator="k1" if algorithm.scope == "none" else given.kl.estimator,
        max_tokens=spec.rollout.max_tokens,
        overlong_buffer=given.overlong.buffer or 0,
        overlong_penalty=given.overlong.penalty or 0.0,
    )
