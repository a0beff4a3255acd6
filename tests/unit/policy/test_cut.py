"""Cuts in the autograd graph: many readers, float32 sums, one backward."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rollplex.policy.cut import Boundary, Cut, Features


def produced(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """A weight and two outputs computed from it."""
    weight = torch.ones(2, dtype=dtype, requires_grad=True)
    return weight, [weight * 2, weight * 3]


def test_the_leaves_are_the_outputs_memory() -> None:
    _, outputs = produced()
    cut = Cut(outputs)
    assert [leaf.data_ptr() for leaf in cut.leaves] == [out.data_ptr() for out in outputs]
    assert all(leaf.is_leaf and leaf.requires_grad for leaf in cut.leaves)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), max_size=6))
def test_many_readers_and_one_backward_are_one_pass(factors: list[tuple[int, int]]) -> None:
    """Whatever reads, the producer gets the gradient that it would get without the cut."""
    weight, outputs = produced()
    cut = Cut(outputs)
    for first, second in factors:
        (cut.leaves[0] * first + cut.leaves[1].square() * second).sum().backward()
        cut.absorb()
        assert weight.grad is None
    cut.backward()
    expected = sum(2 * first + 18 * second for first, second in factors)
    assert (weight.grad is None) == (not factors)
    assert weight.grad is None or weight.grad.tolist() == [expected] * 2


def test_bf16_readers_are_summed_in_float32() -> None:
    """256 + 1 + 1: bf16 has no 257, so the leaf's own .grad never gets past 256."""
    weight, outputs = produced(torch.bfloat16)
    cut, plain = Cut(outputs), outputs[0].detach().requires_grad_()
    for factor in (256.0, 1.0, 1.0):
        (cut.leaves[0] * factor).sum().backward()
        cut.absorb()
        (plain * factor).sum().backward()
    assert plain.grad is not None
    assert plain.grad.tolist() == [256.0, 256.0]
    cut.backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [2 * 258.0] * 2


def test_an_absorbed_gradient_is_not_absorbed_again() -> None:
    weight, outputs = produced()
    cut = Cut(outputs)
    cut.leaves[0].sum().backward()
    for _ in range(3):
        cut.absorb()
    cut.backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [2.0, 2.0]


def test_a_readers_gradients_may_share_memory() -> None:
    """Autograd hands out views of one buffer where leaves were concatenated: sums must not run into each other."""
    weight, outputs = produced()
    cut = Cut(outputs)
    for _ in range(3):
        (torch.cat(cut.leaves) * torch.tensor([1.0, 10.0, 100.0, 1000.0])).sum().backward()
        cut.absorb()
    cut.backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [3 * (2 + 300), 3 * (20 + 3000)]


def test_the_backward_runs_once() -> None:
    _, outputs = produced()
    cut = Cut(outputs)
    cut.leaves[0].sum().backward()
    cut.absorb()
    cut.backward()
    with pytest.raises(RuntimeError, match="this cut has run its backward: its graph is gone"):
        cut.backward()


def test_the_backward_frees_the_producers_graph() -> None:
    freed: list[int] = []

    class Producer(torch.autograd.Function):
        @staticmethod
        def forward(ctx: torch.autograd.function.FunctionCtx, weight: torch.Tensor) -> torch.Tensor:
            return weight * 2

        @staticmethod
        def backward(ctx: torch.autograd.function.FunctionCtx, gradient: torch.Tensor) -> torch.Tensor:
            freed.append(1)
            return gradient * 2

    for read in (True, False):
        out: torch.Tensor = Producer.apply(torch.ones(2, requires_grad=True))  # type: ignore[no-untyped-call]
        cut = Cut([out])
        if read:
            cut.leaves[0].sum().backward()
            cut.absorb()
        cut.backward()
        assert cut._outputs is None
    assert freed == [1], "without a reader nothing runs"


def test_what_needs_no_gradient_has_none_to_give() -> None:
    features = Features([torch.ones(4, 3)])
    assert not features.requires_grad
    weight = torch.ones(3, requires_grad=True)
    (features.tensor * weight).sum().backward()
    features.absorb()
    features.backward()
    assert features.tensor.grad is None


def test_a_boundary_is_read_layer_by_layer() -> None:
    tensors = [torch.full((5, 1, 2, 4), float(index)) for index in range(6)]
    boundary = Boundary(tensors)
    assert boundary.length == 5
    for layer in range(3):
        key, value = boundary.layer(layer)
        assert (float(key.mean()), float(value.mean())) == (2 * layer, 2 * layer + 1)
