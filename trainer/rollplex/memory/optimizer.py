"""AdamW over float32 masters; parameters are written in place, so that every view of them follows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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


def saved_state(
    tensors: Iterable[tuple[str, torch.Tensor]], parameters: Mapping[str, torch.Tensor], mastered: Iterable[str]
) -> Iterator[tuple[str, str, torch.Tensor]]:
    """(parameter, key, tensor) of what an optimizer's ``tensors`` gave, each checked before it comes.

    The key is master, step, exp_avg or exp_avg_sq; ``steps``, the counter of updates, comes with parameter "".

    Args:
        parameters: those that are trained, by name.
        mastered: names of those whose master is a tensor of its own: each has to be there.

    Raises:
        ValueError: it belongs to other parameters.
    """
    wanted = {f"{name}/master" for name in mastered}
    for name, tensor in tensors:
        parameter, _, key = name.rpartition("/")
        if name != "steps":
            if parameter not in parameters or (key not in _MOMENTS and name not in wanted):
                raise ValueError(f"optimizer state {name!r} belongs to no trained parameter")
            if key != "step" and tensor.shape != (shape := parameters[parameter].shape):
                raise ValueError(f"optimizer state {name!r} is {tuple(tensor.shape)}, not {tuple(shape)}")
        wanted.discard(name)
        yield parameter, key, tensor
    if wanted:
        raise ValueError(f"optimizer state lacks {sorted(wanted)[0]!r}")


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
        for master in self._masters.values():
            master.grad = None
        for name in self._copied():
            self._parameters[name].copy_(self._masters[name])
        return rate

    def tensors(self) -> dict[str, torch.Tensor]:
        """``steps``, and ``<parameter>/master`` (where it is not the parameter itself), ``step``, ``exp_avg``, ...

        A parameter that never got a gradient has no moments.
        """
        found = {"steps": torch.tensor(self.steps)} | {f"{name}/master": self._masters[name] for name in self._copied()}
        for name, master in self._masters.items():
            found |= {f"{name}/{key}": value for key, value in self._adam.state.get(master, {}).items()}
        return found

    @torch.no_grad()
    def load(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Take over what :meth:`tensors` gave; raises ValueError where it belongs to other parameters."""
        for name, key, tensor in saved_state(tensors, self._parameters, self._copied()):
            if key == "steps":
                self.steps = int(tensor)
                continue
            master = self._masters[name]
            if key == "master":
                master.copy_(tensor)
            elif key == "step":
                self._adam.state[master][key] = tensor.clone()  # on the host, as torch keeps it
            else:
                self._adam.state[master][key] = tensor.to(master.device, copy=True)

    def _copied(self) -> list[str]:
        """Parameters whose master is not the parameter itself."""
        return [name for name, own in self._masters.items() if own.data_ptr() != self._parameters[name].data_ptr()]
