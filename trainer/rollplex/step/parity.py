"""Rollout log probabilities against the trainer's, on the same tokens (DESIGN invariant 4)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from rollplex.api.errors import RunStopped
from rollplex.batch import Prompt, Response
from rollplex.rollout.protocol import Rollout

MAX_FP32 = 1e-4  # nats, largest difference of any token
MEAN_BF16 = 0.02  # nats, mean over the tokens of a step


@dataclass
class Parity:
    """|engine's log probability - trainer's| of every response token of a step, in nats, by (group, sample)."""

    differences: dict[tuple[int, int], torch.Tensor] = field(default_factory=dict)
    worst: tuple[float, int, int] = (0.0, 0, 0)  # difference, group, sample

    def add(self, response: Response, scored: torch.Tensor) -> None:
        """Compare a response with the trainer's log probabilities [R] of its tokens."""
        engine = torch.tensor(response.logprobs, dtype=torch.float32, device=scored.device)
        difference = (engine - scored).abs()
        self.differences[response.prompt, response.sample] = difference
        largest = float(difference.max())
        if not (math.isnan(self.worst[0]) or largest <= self.worst[0]):  # nan counts as the worst, the first one stays
            self.worst = (largest, response.prompt, response.sample)

    def summary(self) -> dict[str, float]:
        """``max``, ``mean`` and ``p95``; empty where no token was sampled."""
        if not self.differences:
            return {}
        all_tokens = torch.cat(list(self.differences.values()))
        return {
            "max": float(all_tokens.max()),
            "mean": float(all_tokens.mean()),
            # the smallest difference that 95 % of the tokens do not exceed; torch.quantile ends at 16 million
            "p95": float(all_tokens.kthvalue(math.ceil(0.95 * all_tokens.numel())).values),
        }

    def enforce(
        self,
        step: int,
        precision: torch.dtype,
        prompts: Sequence[Prompt],
        responses: Mapping[tuple[int, int], Response],
        rollout: Rollout,
    ) -> None:
        """Stop the run where engine and trainer disagree, and say which input differs.

        Raises:
            RunStopped: largest difference above 1e-4 in fp32, mean above 0.02 in bf16.
        """
        found = self.summary()
        if not found:
            return
        name, value, limit = (
            ("max", found["max"], MAX_FP32) if precision == torch.float32 else ("mean", found["mean"], MEAN_BF16)
        )
        if value <= limit:
            return
        _, group, sample = self.worst
        cause = _differing_input(prompts[group], rollout)
        raise RunStopped(
            f"step {step}: {name} |logp_rollout - logp_trainer| is {value:.2e}, the limit is {limit:g}; worst in "
            f"prompt {prompts[group].id!r} sample {sample} ({len(responses[group, sample].token_ids)} tokens): {cause}"
        )


def _differing_input(prompt: Prompt, rollout: Rollout) -> str:
    engine = rollout.positions(prompt)
    if engine is None:
        return "no engine ran (replay): the saved rollouts belong to other weights, another temperature or precision"
    if engine.shape != prompt.positions.shape:
        return f"the engine has {engine.size(1)} prompt tokens, the trainer {prompt.positions.size(1)}"
    rows = (engine.cpu() != prompt.positions).any(dim=0).nonzero()
    if len(rows):
        at = int(rows[0])
        return (
            f"position ids differ first at token {at}: engine {engine[:, at].tolist()}, "
            f"trainer {prompt.positions[:, at].tolist()}"
        )
    return "token ids and position ids agree: look at weights (stale views or caches), pixels, temperature, precision"
