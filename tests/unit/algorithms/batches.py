"""Samples through the product's functions, as a step puts them together."""

from __future__ import annotations

import torch

from rollplex.algorithms.base import Advantage, Outcome, Scored, Settings
from rollplex.algorithms.choose import ALGORITHMS
from rollplex.algorithms.loss import token_loss
from rollplex.algorithms.normalization import batch_scale, token_weight
from tests.unit.algorithms.formulas import Batch


def advantages_of(name: str, batch: Batch, settings: Settings) -> list[Advantage]:
    algorithm = ALGORITHMS[name]
    outcomes = [
        Outcome(
            () if algorithm.scope == "none" else tuple(sample.reward for sample in group),
            tuple(sample.logp.numel() for sample in group),
        )
        for group in batch
    ]
    if algorithm.scope == "batch":
        return algorithm.advantages(outcomes, settings)
    return [advantage for outcome in outcomes for advantage in algorithm.advantages([outcome], settings)]


def loss_of(name: str, batch: Batch, settings: Settings) -> torch.Tensor:
    """The loss of a batch; its groups in passes of their own, and those that do not count in none."""
    algorithm = ALGORITHMS[name]
    summed, lengths = torch.zeros((), dtype=torch.float64), []
    for group, advantage in zip(batch, advantages_of(name, batch, settings), strict=True):
        if not advantage.counts:
            continue
        lengths += [sample.logp.numel() for sample in group]
        members = [(s, a) for s, a in zip(group, advantage.values, strict=True) if s.logp.numel()]
        if not members:
            continue
        own = tuple(sample.logp.numel() for sample, _ in members)
        scored = Scored(
            torch.cat([sample.logp for sample, _ in members]),
            torch.cat([sample.old for sample, _ in members]),
            torch.cat([torch.full_like(sample.old, value) for sample, value in members]),
            own,
            torch.cat([sample.reference for sample, _ in members])
            if settings.kl_coefficient or algorithm.scope == "none"
            else None,
        )
        weight = torch.cat(
            [torch.full((n,), token_weight(settings.normalization, n), dtype=torch.float64) for n in own]
        )
        summed = summed + (token_loss(algorithm, scored, settings).loss * weight).sum()
    return summed * batch_scale(settings.normalization, lengths, settings.max_tokens)
