"""Running batches to their end and comparing them with transformers."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rollplex.batch import Prompt, Response
from rollplex.policy.policy import Policy
from rollplex.rollout.engine import RolloutEngine
from rollplex.rollout.protocol import Sampling
from tests.engine.tiny import hf_logprobs, hf_twin


def run(
    engine: RolloutEngine, prompts: Sequence[Prompt], group: int = 1, sampling: Sampling | None = None, step: int = 0
) -> list[Response]:
    """All responses of a batch, in order of prompt and sample."""
    engine.submit(step, prompts, group, sampling or Sampling(max_tokens=8))
    done: list[Response] = []
    while engine.unfinished:
        done += engine.step()
    return sorted(done, key=lambda r: (r.prompt, r.sample))


def worst_difference(
    policy: Policy, prompts: Sequence[Prompt], responses: Sequence[Response], temperature: float = 1.0
) -> float:
    """Largest |engine - transformers| log probability over all tokens, with the policy's present weights."""
    twin = hf_twin(policy)
    return max(
        float((hf_logprobs(twin, prompts[r.prompt], r.token_ids, temperature) - torch.tensor(r.logprobs)).abs().max())
        for r in responses
    )
