"""The estimators of the KL: values, gradients, and what they are on average."""

from __future__ import annotations

from math import log

import pytest
import torch

from rollplex.algorithms.kl import ESTIMATORS


@pytest.mark.parametrize(
    ("name", "value", "gradient"),
    [
        ("k1", log(2), 1.0),
        ("k2", log(2) ** 2 / 2, log(2)),
        ("k3", 0.5 - 1 + log(2), 0.5),
    ],
)
def test_value_and_gradient_by_hand(name: str, value: float, gradient: float) -> None:
    """p = 0.5, q = 0.25."""
    logp = torch.tensor(log(0.5), requires_grad=True)
    found = ESTIMATORS[name](logp, torch.tensor(log(0.25)))
    found.backward()
    assert float(found.detach()) == pytest.approx(value)
    assert logp.grad is not None
    assert float(logp.grad) == pytest.approx(gradient)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_equal_policies_have_no_kl(name: str) -> None:
    logp = torch.linspace(-20, 0, 50)
    assert torch.equal(ESTIMATORS[name](logp, logp.clone()), torch.zeros(50))


def policies() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits with gradient, and the log probabilities of policy and reference over a vocabulary of 30."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(30, generator=generator, dtype=torch.float64).requires_grad_()
    reference = torch.randn(30, generator=generator, dtype=torch.float64).log_softmax(-1)
    return logits, logits.log_softmax(-1), reference


@pytest.mark.parametrize("name", ["k1", "k3"])
def test_the_unbiased_ones_are_the_kl_on_average(name: str) -> None:
    _, logp, reference = policies()
    exact = (logp.exp() * (logp - reference)).sum()
    mean = (logp.exp() * ESTIMATORS[name](logp, reference)).sum()
    assert mean.item() == pytest.approx(exact.item())


def test_gradients_on_average() -> None:
    """Sampled tokens are fixed, so E[grad]: k1's vanishes, k2's is that of the KL."""

    def average(name: str) -> torch.Tensor:
        logits, logp, reference = policies()
        (logp.detach().exp() * ESTIMATORS[name](logp, reference)).sum().backward()
        assert logits.grad is not None
        return logits.grad

    logits, logp, reference = policies()
    (logp.exp() * (logp - reference)).sum().backward()
    assert torch.allclose(average("k1"), torch.zeros(30, dtype=torch.float64), atol=1e-12)
    assert logits.grad is not None
    assert torch.allclose(average("k2"), logits.grad)


def test_k3_is_never_negative_however_near_the_policies_are() -> None:
    logp = torch.linspace(-5, 0, 1000)
    for shift in (1e-7, 1e-4, 0.1, 3.0):
        assert (ESTIMATORS["k3"](logp, logp + shift) >= 0).all()
        assert (ESTIMATORS["k3"](logp, logp - shift) >= 0).all()
