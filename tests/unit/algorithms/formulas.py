"""The papers' objectives, written out token by token and independently of the product, as losses to minimise.

A batch is a list of groups; a group a list of samples. Denominators that a paper writes per prompt are those of a batch
here, as in its authors' code; with one group the two are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt

import torch


@dataclass
class Sample:
    """One response: log probabilities [R] of the policy (with gradient), of who sampled it, and of the reference."""

    logp: torch.Tensor
    old: torch.Tensor
    reference: torch.Tensor
    reward: float


Batch = Sequence[Sequence[Sample]]


@dataclass
class Numbers:
    """The formulas' Greek letters."""

    low: float = 0.2
    high: float = 0.2
    cap: float = 2.0
    beta: float = 0.0
    max_tokens: int = 12
    buffer: int = 0
    penalty: float = 0.0


def ratio(sample: Sample, t: int, cap: float) -> torch.Tensor:
    """pi / pi_old at token t; beyond ``cap`` truncated importance sampling: the weight stays cap, the token learns."""
    plain = torch.exp(sample.logp[t] - sample.old[t])
    return plain if plain.item() <= cap else cap * (1 + sample.logp[t] - sample.logp[t].item())


def ppo(rho: torch.Tensor, advantage: float, n: Numbers) -> torch.Tensor:
    """PPO's objective by cases (arXiv 1707.06347, "Clipped Surrogate Objective")."""
    if advantage > 0 and rho.item() > 1 + n.high:
        return torch.tensor((1 + n.high) * advantage, dtype=rho.dtype)
    if advantage < 0 and rho.item() < 1 - n.low:
        return torch.tensor((1 - n.low) * advantage, dtype=rho.dtype)
    return rho * advantage


def kl(sample: Sample, t: int) -> torch.Tensor:
    """Equation 4 of arXiv 2402.03300."""
    difference = sample.reference[t] - sample.logp[t]
    return torch.exp(difference) - difference - 1


def deviation(rewards: Sequence[float]) -> float:
    mean = sum(rewards) / len(rewards)
    return sqrt(sum((r - mean) ** 2 for r in rewards) / (len(rewards) - 1))


def group_relative(rewards: Sequence[float]) -> list[float]:
    mean = sum(rewards) / len(rewards)
    return [0.0 if deviation(rewards) < 1e-12 else (r - mean) / (deviation(rewards) + 1e-6) for r in rewards]


def _rewards(group: Sequence[Sample]) -> list[float]:
    return [sample.reward for sample in group]


def _token_objective(sample: Sample, advantage: float, n: Numbers) -> list[torch.Tensor]:
    """Clipped surrogate minus beta KL, by token."""
    return [ppo(ratio(sample, t, n.cap), advantage, n) - n.beta * kl(sample, t) for t in range(sample.logp.numel())]


def grpo(batch: Batch, n: Numbers) -> torch.Tensor:
    """arXiv 2402.03300, equation 3."""
    objective, responses = torch.zeros((), dtype=torch.float64), 0
    for group in batch:
        for sample, advantage in zip(group, group_relative(_rewards(group)), strict=True):
            responses += 1
            values = _token_objective(sample, advantage, n)
            for value in values:
                objective = objective + value / len(values)
    return -objective / responses


def dr_grpo(batch: Batch, n: Numbers) -> torch.Tensor:
    """arXiv 2503.20783, section 3.2 and listing 1 (MAX_TOKENS)."""
    objective, responses = torch.zeros((), dtype=torch.float64), 0
    for group in batch:
        mean = sum(_rewards(group)) / len(group)
        for sample in group:
            responses += 1
            for value in _token_objective(sample, sample.reward - mean, n):
                objective = objective + value / n.max_tokens
    return -objective / responses


def gspo(batch: Batch, n: Numbers) -> torch.Tensor:
    """arXiv 2507.18071, equations 5 to 7; the cap of truncated importance sampling holds for the sequence's ratio."""
    objective, responses = torch.zeros((), dtype=torch.float64), 0
    for group in batch:
        for sample, advantage in zip(group, group_relative(_rewards(group)), strict=True):
            responses += 1
            length = sample.logp.numel()
            if length == 0:
                continue
            mean = torch.stack([sample.logp[t] - sample.old[t] for t in range(length)]).sum() / length
            s = torch.exp(mean)
            if s.item() > n.cap:
                s = n.cap * (1 + mean - mean.item())
            penalty = sum(n.beta * kl(sample, t) for t in range(length)) / length
            objective = objective + ppo(s, advantage, n) - penalty
    return -objective / responses


def dapo(batch: Batch, n: Numbers) -> torch.Tensor:
    """arXiv 2503.14476, equations 8, 9 and 13; groups that are all right or all wrong are not in the batch."""
    objective, tokens = torch.zeros((), dtype=torch.float64), 0
    for group in batch:
        if len(set(_rewards(group))) == 1:
            continue
        shaped = []
        for sample in group:
            length, free = sample.logp.numel(), n.max_tokens - n.buffer
            over = 0.0 if length <= free else (free - length) / n.buffer
            shaped.append(sample.reward + n.penalty * over)
        for sample, advantage in zip(group, group_relative(shaped), strict=True):
            tokens += sample.logp.numel()
            for value in _token_objective(sample, advantage, n):
                objective = objective + value
    return -objective / max(1, tokens)


def cispo(batch: Batch, n: Numbers) -> torch.Tensor:
    """arXiv 2506.13585, equations 4 and 5."""
    objective, tokens = torch.zeros((), dtype=torch.float64), 0
    for group in batch:
        for sample, advantage in zip(group, group_relative(_rewards(group)), strict=True):
            for t in range(sample.logp.numel()):
                tokens += 1
                weight = min(torch.exp(sample.logp[t] - sample.old[t]).item(), n.cap)
                weight = min(max(weight, 1 - n.low), 1 + n.high)
                objective = objective + weight * advantage * sample.logp[t] - n.beta * kl(sample, t)
    return -objective / tokens


def rloo(batch: Batch, n: Numbers) -> torch.Tensor:
    """arXiv 2402.14740, "REINFORCE Leave-One-Out": 1/k sum_i (R_i - mean of the others) grad log pi(y_i).

    Weights as in TIS.
    """
    objective, responses = torch.zeros((), dtype=torch.float64), 0
    for group in batch:
        for i, sample in enumerate(group):
            responses += 1
            others = [other.reward for j, other in enumerate(group) if j != i]
            advantage = sample.reward - sum(others) / len(others)
            for t in range(sample.logp.numel()):
                objective = objective + ratio(sample, t, n.cap) * advantage - n.beta * kl(sample, t)
    return -objective / responses


def reinforce_plus_plus(batch: Batch, n: Numbers) -> torch.Tensor:
    """arXiv 2501.03262, global advantage normalisation over a batch of rewards, in PPO's loss."""
    advantages = iter(group_relative([sample.reward for group in batch for sample in group]))
    objective, responses = torch.zeros((), dtype=torch.float64), 0
    for group in batch:
        for sample in group:
            responses += 1
            values = _token_objective(sample, next(advantages), n)
            for value in values:
                objective = objective + value / len(values)
    return -objective / responses


def opd(batch: Batch, n: Numbers) -> torch.Tensor:
    """Sampled reverse KL (arXiv 2306.13649): its score-function gradient, token by token."""
    loss, tokens = torch.zeros((), dtype=torch.float64), 0
    for group in batch:
        for sample in group:
            for t in range(sample.logp.numel()):
                tokens += 1
                reverse = (sample.logp[t] - sample.reference[t]).item()
                loss = loss + ratio(sample, t, n.cap) * reverse
    return loss / tokens


FORMULAS: dict[str, Callable[[Batch, Numbers], torch.Tensor]] = {
    function.__name__: function for function in (grpo, dr_grpo, gspo, dapo, cispo, rloo, reinforce_plus_plus, opd)
}
