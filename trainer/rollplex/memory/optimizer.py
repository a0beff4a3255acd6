"""AdamW over float32 masters; parameters are written in place, so that every view of them follows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

import torch

from rollplex.api.training import OptimizerSpec
from rollplex.memory.gradients import Gradients


class Optimizer(Protocol):
    """What the step needs of an optimizer (the streamed one has the same face)."""

    def step(self, gradients: Gradients) -> float:
        """Consume a step's summed gradients, write the parameters in place; returns the learning rate used."""


@runtime_checkable
class SavedOptimizer(Optimizer, Protocol):
    """An optimizer whose state outlives the process."""

    def tensors(self) -> dict[str, torch.Tensor]:
        """All of its state beside the parameters themselves, by name; the tensors are its own, so copy them."""

    def load(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Take over what :meth:`tensors` gave; the parameters must be those of that moment. Raises ValueError."""


_MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # torch's names


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

    def tensors(self) -> dict[str, torch.Tensor]:
        """``steps``, and ``<parameter>/master`` (where it is not the parameter itself), ``step``, ``exp_avg``, ...

        A parameter that never got a gradient has no moments.
        """
        found = {"steps": torch.tensor(self.steps)}
        for name, master in self._masters.items():
            if master.data_ptr() != self._parameters[name].data_ptr():
                found[f"{name}/master"] = master
            found |= {f"{name}/{key}": value for key, value in self._adam.state.get(master, {}).items()}
        return found

    @torch.no_grad()
    def load(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Take over what :meth:`tensors` gave; raises ValueError where it belongs to other parameters."""
        wanted = {f"{n}/master" for n, m in self._masters.items() if m.data_ptr() != self._parameters[n].data_ptr()}
        for name, tensor in tensors:
            parameter, _, key = name.rpartition("/")
            master = self._masters.get(parameter)
            if name == "steps":
                self.steps = int(tensor)
            elif master is None or (key not in _MOMENTS and name not in wanted):
                raise ValueError(f"optimizer state {name!r} belongs to no trained parameter")
            elif key == "step":
                self._adam.state[master][key] = tensor.clone()  # on the host, as torch keeps it
            elif tensor.shape != master.shape:
                raise ValueError(f"optimizer state {name!r} is {tuple(tensor.shape)}, not {tuple(master.shape)}")
            elif key == "master":
                master.copy_(tensor)
                wanted.discard(name)
            else:
                self._adam.state[master][key] = tensor.to(master.device, copy=True)
        if wanted:
            raise ValueError(f"optimizer state lacks {sorted(wanted)[0]!r}")
