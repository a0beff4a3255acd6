"""AdamW whose master weights and moments live on the host and pass through a few buffers of the device.

A chunk of a parameter is copied in, updated and copied out; with three sets of buffers the two copies and the update of
neighbouring chunks run at once. On CPU, where there is nothing to copy to, the same code runs without streams.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from rollplex.api.training import OptimizerSpec
from rollplex.memory.gradients import Gradients
from rollplex.memory.optimizer import learning_rate, saved_state

_SETS = 3  # one coming in, one at work, one going out
_CHUNK = 32 << 20  # elements of a chunk: 128 MiB each of master and moments
_EPS = 1e-8  # torch.optim.AdamW's


@dataclass(slots=True)
class _Host:
    """A parameter's state, flat float32 on the host; ``master`` is None where the parameter is its own."""

    master: torch.Tensor | None
    exp_avg: torch.Tensor
    exp_avg_sq: torch.Tensor
    step: int = 0

    def streamed(self) -> list[torch.Tensor]:
        return [tensor for tensor in (self.exp_avg, self.exp_avg_sq, self.master) if tensor is not None]


class _Lane:
    """Work in order on a stream; on CPU just work in order."""

    def __init__(self, stream: torch.cuda.Stream | None) -> None:
        self._stream = stream

    def run(self) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def after(self, event: torch.cuda.Event | None) -> None:
        if self._stream is not None and event is not None:
            self._stream.wait_event(event)

    def mark(self) -> torch.cuda.Event | None:
        return None if self._stream is None else self._stream.record_event()


@dataclass(slots=True)
class _Set:
    """One set of buffers on the device, and when its last chunk had left it."""

    tensors: list[torch.Tensor]
    free: torch.cuda.Event | None = None


class StreamedAdamW:
    """The same numbers as :class:`rollplex.memory.optimizer.MasterAdamW`, with its state on the host.

    Beside the parameters and gradients the device holds nine buffers of ``chunk`` float32 values.

    Args:
        gradients: of the parameters, which are contiguous.
        spec: the job's ``training.optimizer``.
        chunk: elements that are updated at once.
    """

    def __init__(self, gradients: Gradients, spec: OptimizerSpec, chunk: int = _CHUNK) -> None:
        self._spec, self._parameters = spec, gradients.parameters
        self.steps = 0
        self._device = device = next(iter(self._parameters.values())).device
        self._cuda = device.type == "cuda"
        self._flat: dict[str, torch.Tensor] = {}
        self._state: dict[str, _Host] = {}
        self._masters: dict[str, torch.Tensor] = {}
        for name, parameter in self._parameters.items():
            if not parameter.is_contiguous():
                raise ValueError(f"parameter {name!r} is not contiguous: its chunks would not lie together")
            self._flat[name] = parameter.detach().view(-1)
            if parameter.dtype != torch.float32:
                self._masters[name] = self._host(parameter.numel()).copy_(self._flat[name])
        largest = max(flat.numel() for flat in self._flat.values())
        self._chunk = min(chunk, largest)
        self._inward, self._outward = (_Lane(torch.cuda.Stream(device) if self._cuda else None) for _ in range(2))
        self._sets = [_Set([torch.empty(self._chunk, device=device) for _ in range(3)]) for _ in range(_SETS)]

    @torch.no_grad()
    def step(self, gradients: Gradients) -> float:
        """One update; parameters that got no gradient this step keep their value (and get no decay)."""
        self.steps += 1
        rate = learning_rate(self._spec, self.steps)
        compute = _Lane(torch.cuda.current_stream(self._device) if self._cuda else None)
        turn = 0
        for name, gradient in gradients.items():
            state = self._started(name)
            state.step += 1
            flat = gradient.reshape(-1)
            for start in range(0, flat.numel(), self._chunk):
                part = slice(start, min(start + self._chunk, flat.numel()))
                self._update(compute, self._sets[turn % _SETS], state, self._flat[name][part], flat[part], part, rate)
                turn += 1
        if self._cuda:
            torch.cuda.synchronize(self._device)  # what is on the host now is read by whoever likes
        return rate

    def tensors(self) -> dict[str, torch.Tensor]:
        """By the names of :meth:`rollplex.memory.optimizer.MasterAdamW.tensors`: either can load the other's."""
        found = {"steps": torch.tensor(self.steps)}
        for name, parameter in self._parameters.items():
            if name in self._masters:
                found[f"{name}/master"] = self._masters[name].view(parameter.shape)
            if (state := self._state.get(name)) is not None:
                found[f"{name}/step"] = torch.tensor(float(state.step))
                found[f"{name}/exp_avg"] = state.exp_avg.view(parameter.shape)
                found[f"{name}/exp_avg_sq"] = state.exp_avg_sq.view(parameter.shape)
        return found

    @torch.no_grad()
    def load(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Take over what :meth:`tensors` gave; raises ValueError where it belongs to other parameters."""
        for name, key, tensor in saved_state(tensors, self._parameters, self._masters):
            if key == "steps":
                self.steps = int(tensor)
            elif key == "master":
                self._masters[name].copy_(tensor.reshape(-1))
            elif key == "step":
                self._started(name).step = int(tensor)
            else:
                getattr(self._started(name), key).copy_(tensor.reshape(-1))

    def _started(self, name: str) -> _Host:
        """A parameter's state; its moments are zero until its first gradient."""
        if name not in self._state:
            exp_avg, exp_avg_sq = (self._host(self._flat[name].numel()).zero_() for _ in range(2))
            self._state[name] = _Host(self._masters.get(name), exp_avg, exp_avg_sq)
        return self._state[name]

    def _host(self, count: int) -> torch.Tensor:
        """float32 values on the host, which a GPU can read and write by itself; undefined."""
        return torch.empty(count, pin_memory=self._cuda)

    def _update(
        self,
        compute: _Lane,
        buffers: _Set,
        state: _Host,
        parameter: torch.Tensor,
        gradient: torch.Tensor,
        part: slice,
        rate: float,
    ) -> None:
        """Update ``part`` of a parameter, whose values ``parameter`` and ``gradient`` are."""
        host = [tensor[part] for tensor in state.streamed()]
        device = [buffer[: gradient.numel()] for buffer in buffers.tensors[: len(host)]]
        self._inward.after(buffers.free)
        with self._inward.run():
            for target, source in zip(device, host, strict=True):
                target.copy_(source, non_blocking=True)
        compute.after(self._inward.mark())
        exp_avg, exp_avg_sq, *rest = device
        master = rest[0] if rest else parameter
        self._adamw(master, gradient, exp_avg, exp_avg_sq, rate, state.step)
        if rest:
            parameter.copy_(master)
        self._outward.after(compute.mark())
        with self._outward.run():
            for source, target in zip(device, host, strict=True):
                target.copy_(source, non_blocking=True)
        buffers.free = self._outward.mark()

    def _adamw(
        self,
        master: torch.Tensor,
        gradient: torch.Tensor,
        exp_avg: torch.Tensor,
        exp_avg_sq: torch.Tensor,
        rate: float,
        step: int,
    ) -> None:
        """Loshchilov and Hutter, arXiv 1711.05101, algorithm 2.

        By the kernels of torch.optim.AdamW(foreach=True), in its order: on a GPU the others round otherwise.
        """
        beta1, beta2 = self._spec.betas
        if self._spec.weight_decay:
            torch._foreach_mul_([master], 1 - rate * self._spec.weight_decay)
        torch._foreach_lerp_([exp_avg], [gradient], 1 - beta1)
        torch._foreach_mul_([exp_avg_sq], beta2)
        torch._foreach_addcmul_([exp_avg_sq], [gradient], [gradient], 1 - beta2)
        scale = torch._foreach_sqrt([exp_avg_sq])
        torch._foreach_div_(scale, [(1 - beta2**step) ** 0.5])
        torch._foreach_add_(scale, _EPS)
        torch._foreach_addcdiv_([master], [exp_avg], scale, [-(rate / (1 - beta1**step))])
