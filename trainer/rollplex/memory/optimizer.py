"""AdamW over float32 masters; parameters are written in place, so that every view of them follows."""

from __future__ import annotations

from typing import Protocol

import torch

from rollplex.api.training import OptimizerSpec
from rollplex.memory.gradients import Gradients


class Optimizer(Protocol):
    """What the step needs of an optimizer (the streamed one has the same face)."""

    def step(self, gradients: Gradients) -> float:
        """Consume a step's summed gradients, write the parameters in place; returns the learning rate used."""


def learning_rate(spec: OptimizerSpec, step: int) -> float:
    """Linear warm-up to ``learningRate`` over ``warmupSteps``, then constant; ``step`` counts from 1."""
    if step >= spec.warmup_steps:
        return spec.learning_rate
    return spec.learning_rate * step / spec.warmup_steps


class MasterAdamW:
    """torch.optim.AdamW over float32 masters of the trainable parameters.

    A float32 parameter is its own master; another dtype gets a float32 copy that is rounded back after each step.
    """

    def __init__(self, gradients: Gradients, spec: OptimizerSpec) -> None:
        self._spec = spec
        self._parameters = gradients.parameters
        self._masters = {
            name: parameter.detach() if parameter.dtype == torch.float32 else parameter.detach().float()
            for name, parameter in self._parameters.items()
        }
        self._adam = torch.optim.AdamW(
            self._masters.values(),
            lr=spec.learning_rate,
            betas=(spec.betas[0], spec.betas[1]),
            weight_decay=spec.weight_decay,
            foreach=True,
        )
        self.steps = 0

    @torch.no_grad()
    def step(self, gradients: Gradients) -> float:
        """One update; parameters that got no gradient this step keep their value (and get no decay)."""
        self.steps += 1
        rate = learning_rate(self._spec, self.steps)
        for group in self._adam.param_groups:
            group["lr"] = rate
        for name, gradient in gradients.items():
            self._masters[name].grad = gradient
        self._adam.step()
        for name, master in self._masters.items():
            master.grad = None
            parameter = self._parameters[name]
            if parameter.data_ptr() != master.data_ptr():
                parameter.copy_(master)
        return rate
