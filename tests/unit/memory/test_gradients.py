"""Gradient sums: float32 for every dtype, in the order of the backwards."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rollplex.memory.gradients import Gradients


def parameter(*values: float, dtype: torch.dtype = torch.float32, trained: bool = True) -> nn.Parameter:
    return nn.Parameter(torch.tensor(values, dtype=dtype), requires_grad=trained)


def push(weight: nn.Parameter, gradient: float) -> None:
    """A backward whose gradient to every element of ``weight`` is ``gradient``."""
    (weight * gradient).sum().backward()


def test_bf16_gradients_are_summed_in_float32() -> None:
    """256 + 1 + 1: bf16 has no 257, so its own sum never gets past 256."""
    plain, ours = parameter(0.0, dtype=torch.bfloat16), parameter(0.0, dtype=torch.bfloat16)
    gradients = Gradients([("w", ours)])
    for value in (256.0, 1.0, 1.0):
        push(plain, value)
        push(ours, value)
    assert plain.grad is not None
    assert plain.grad.tolist() == [256.0]
    assert {name: (g.tolist(), g.dtype) for name, g in gradients.items()} == {"w": ([258.0], torch.float32)}
    assert ours.grad is None


def test_only_trained_parameters_that_got_a_gradient_are_there() -> None:
    used, unused, frozen = parameter(1.0), parameter(1.0), parameter(1.0, trained=False)
    gradients = Gradients([("used", used), ("unused", unused), ("frozen", frozen)])
    (used * frozen).sum().backward()
    assert list(gradients.parameters) == ["used", "unused"]
    assert dict(gradients.items()).keys() == {"used"}


def test_norm_scale_and_clear() -> None:
    first, second = parameter(0.0), parameter(0.0, 0.0)
    gradients = Gradients([("first", first), ("second", second)])
    assert gradients.norm() == 0.0
    push(first, 1.0)
    push(second, 2.0)
    assert gradients.norm() == pytest.approx(3.0)
    gradients.scale_(0.5)
    assert gradients.norm() == pytest.approx(1.5)
    gradients.clear()
    assert dict(gradients.items()) == {}
    push(second, 7.0)  # nothing of the step before is in it
    assert {name: g.tolist() for name, g in gradients.items()} == {"second": [7.0, 7.0]}


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_the_norm_of_a_bad_gradient_is_not_finite(bad: float) -> None:
    first, second = parameter(0.0), parameter(0.0)
    gradients = Gradients([("first", first), ("second", second)])
    push(first, 1.0)
    push(second, bad)
    assert not gradients.norm() < float("inf")


def test_sums_are_not_what_autograd_goes_on_to_write() -> None:
    """The first gradient is taken over without a copy: a later backward must not write into it, or into another's."""
    first, second = parameter(1.0, 1.0), parameter(1.0, 1.0)
    gradients = Gradients([("first", first), ("second", second)])
    torch.cat([first, second]).mul(torch.tensor([1.0, 2.0, 3.0, 4.0])).sum().backward()
    (first + second).sum().backward()  # both get the same gradient tensor
    assert {name: g.tolist() for name, g in gradients.items()} == {"first": [2.0, 3.0], "second": [4.0, 5.0]}


def test_without_hooks_autograd_keeps_its_gradient() -> None:
    weight = parameter(1.0)
    gradients = Gradients([("w", weight)])
    gradients.close()
    push(weight, 2.0)
    assert weight.grad is not None
    assert dict(gradients.items()) == {}


def test_filling_gives_zeros_where_nothing_came_and_leaves_the_rest() -> None:
    used, skipped, other = (
        parameter(1.0, dtype=torch.bfloat16),
        parameter(1.0, 2.0, dtype=torch.bfloat16),
        parameter(1.0),
    )
    gradients = Gradients([("used", used), ("skipped", skipped), ("other", other)])
    push(used, 3.0)
    gradients.fill(["used", "skipped"])
    assert {name: (g.tolist(), g.dtype) for name, g in gradients.items()} == {
        "used": ([3.0], torch.float32),
        "skipped": ([0.0, 0.0], torch.float32),
    }
