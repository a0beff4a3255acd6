"""Cuts in the autograd graph: one producer, many consumers, one backward.

A prefix's boundary KV and a medium's features are computed once and read by many passes. Each reads *leaves* that
share the producer's memory; its backward stops there. The gradients are summed here in float32, in the order in which
:meth:`Cut.absorb` is called (``.grad`` of a bf16 leaf would sum in bf16), and one backward takes the sums further.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


class Cut:
    """Tensors that consumers read as leaves and that get their summed gradients in one backward."""

    def __init__(self, outputs: Sequence[torch.Tensor]) -> None:
        self._outputs: list[torch.Tensor] | None = list(outputs)
        self.leaves = [out.detach().requires_grad_(out.requires_grad) for out in outputs]
        self._sums: list[torch.Tensor | None] = [None] * len(self.leaves)

    @property
    def requires_grad(self) -> bool:
        return any(leaf.requires_grad for leaf in self.leaves)

    def absorb(self) -> None:
        """Add what the last consumer's backward left on the leaves to the float32 sums."""
        for index, leaf in enumerate(self.leaves):
            if leaf.grad is None:
                continue
            held = self._sums[index]
            # the first gradient is taken over, not copied, where it is float32 already
            self._sums[index] = leaf.grad.float() if held is None else held.add_(leaf.grad)
            leaf.grad = None

    def backward(self) -> None:
        """Send the sums through the producer's graph and free it; without consumers or graph nothing happens."""
        outputs, self._outputs = self._outputs, None
        if outputs is None:
            raise RuntimeError("this cut has run its backward: its graph is gone")
        pairs = [(out, grad.to(out.dtype)) for out, grad in zip(outputs, self._sums, strict=True) if grad is not None]
        self._sums = [None] * len(self.leaves)
        if pairs:
            torch.autograd.backward([out for out, _ in pairs], [grad for _, grad in pairs])


class Boundary(Cut):
    """The post-RoPE keys and values of one prefix, per layer: outputs ``[k0, v0, k1, v1, ...]``, each [P, 1, k, d]."""

    def layer(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Leaves (key, value) of a layer, counted from 0."""
        return self.leaves[2 * index], self.leaves[2 * index + 1]

    @property
    def length(self) -> int:
        """Tokens of the prefix."""
        return self.leaves[0].size(0)


class Features(Cut):
    """The vision features of one medium, each [n, hidden]: those of its tokens, and behind them those of deepstack,
    which are added to the first decoder layers' outputs."""

    @property
    def tensor(self) -> torch.Tensor:
        return self.leaves[0]
