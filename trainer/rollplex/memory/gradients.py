"""Parameter gradients, summed in float32 whatever the parameters' dtype."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import nn


class Gradients:
    """float32 sums of what every backward of a step leaves on the parameters, in the order of the backwards.

    Autograd would sum a bf16 parameter's gradient in bf16; a hook takes each contribution over before that.
    """

    def __init__(self, parameters: Iterable[tuple[str, nn.Parameter]]) -> None:
        self.parameters = {name: parameter for name, parameter in parameters if parameter.requires_grad}
        self._sums: dict[str, torch.Tensor] = {}
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(self._hook(name))
            for name, parameter in self.parameters.items()
        ]

    def _hook(self, name: str) -> Callable[[torch.Tensor], None]:
        def take(parameter: torch.Tensor) -> None:
            assert parameter.grad is not None
            held = self._sums.get(name)
            self._sums[name] = parameter.grad.float() if held is None else held.add_(parameter.grad)
            parameter.grad = None

        return take

    def items(self) -> Iterator[tuple[str, torch.Tensor]]:
        """(name, float32 sum) of every parameter that got a gradient."""
        return iter(self._sums.items())

    def fill(self, names: Iterable[str]) -> None:
        """Give parameters that no backward reached a gradient of zero, where one that was left out would have."""
        for name in names:
            if name not in self._sums:
                self._sums[name] = torch.zeros_like(self.parameters[name], dtype=torch.float32)

    @torch.no_grad()
    def scale_(self, factor: float) -> None:
        for gradient in self._sums.values():
            gradient.mul_(factor)

    @torch.no_grad()
    def norm(self) -> float:
        """Global L2 norm; nan or inf where a gradient is not finite."""
        if not self._sums:
            return 0.0
        return float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in self._sums.values()])))

    def clear(self) -> None:
        self._sums.clear()

    def close(self) -> None:
        """Take the hooks off the parameters."""
        for hook in self._hooks:
            hook.remove()
