"""The one policy, softmax(logits / T): log probability, entropy, gradient."""

from __future__ import annotations

from math import inf, log

import pytest
import torch

from rollplex.policy.logprobs import token_logprobs


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.5])
def test_the_temperature_scales_log_probability_and_entropy(temperature: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 40, generator=generator)
    targets = torch.arange(6)
    policy = (logits.double() / temperature).softmax(-1)
    logp, entropy = token_logprobs(logits, targets, temperature)
    assert torch.allclose(logp.double(), policy[range(6), targets].log(), atol=1e-6)
    assert torch.allclose(entropy.double(), -(policy * policy.log()).sum(-1), atol=1e-6)


def test_values_by_hand() -> None:
    logits = torch.tensor([[0.0, 0.0], [log(3), 0.0], [log(3), 0.0]])
    logp, entropy = token_logprobs(logits, torch.tensor([0, 0, 1]), 1.0)
    assert logp.tolist() == pytest.approx([log(1 / 2), log(3 / 4), log(1 / 4)])
    assert entropy.tolist() == pytest.approx([log(2)] + [-(3 / 4 * log(3 / 4) + 1 / 4 * log(1 / 4))] * 2)
    # at T = 2 the odds of 3 become sqrt(3)
    halved, _ = token_logprobs(logits, torch.tensor([0, 0, 1]), 2.0)
    assert float(halved[1]) == pytest.approx(log(3**0.5 / (1 + 3**0.5)))


def test_forbidden_tokens_leave_everything_finite() -> None:
    """Logits of -inf: 0 * log 0 is 0, in the value and in the gradient."""
    logits = torch.tensor([[1.0, -inf, 2.0, -inf], [0.0, -inf, -inf, -inf]], requires_grad=True)
    logp, entropy = token_logprobs(logits, torch.tensor([2, 0]), 0.7)
    logp.sum().backward()
    odds = torch.tensor([1.0, 2.0]).div(0.7).softmax(0)
    assert entropy.tolist() == pytest.approx([float(-(odds * odds.log()).sum()), 0.0])
    assert logp[1].item() == 0.0
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


def test_the_entropy_carries_no_gradient_and_both_are_float32() -> None:
    logits = torch.randn(3, 5, dtype=torch.bfloat16, requires_grad=True)
    logp, entropy = token_logprobs(logits, torch.tensor([0, 1, 2]), 1.0)
    assert (logp.dtype, entropy.dtype) == (torch.float32, torch.float32)
    assert logp.requires_grad
    assert not entropy.requires_grad


def test_the_gradient_is_that_of_the_scaled_policy() -> None:
    logits = torch.randn(1, 7, generator=torch.Generator().manual_seed(1)).requires_grad_()
    logp, _ = token_logprobs(logits, torch.tensor([3]), 2.0)
    logp.sum().backward()
    expected = (torch.eye(7)[3] - (logits.detach() / 2).softmax(-1)) / 2
    assert logits.grad is not None
    assert torch.allclose(logits.grad, expected, atol=1e-6)
