"""A step in bf16: near the one in float32, summed in float32."""

from __future__ import annotations

import pytest
import torch

from rollplex.policy.policy import Policy
from rollplex.weights.hf import HfView, hf_views
from tests.engine.exact.batch import Case
from tests.engine.exact.harness import run_step
from tests.engine.exact.reference import relative_errors
from tests.engine.tiny import random_policy, tiny_shape


def views_of(policy: Policy) -> dict[str, HfView]:
    return hf_views(dict(policy.language.named_parameters()), dict(policy.visual.named_parameters()), policy.shape)


@pytest.fixture(scope="module")
def pair() -> tuple[Policy, Policy]:
    """A policy in bf16, and one in float32 with the same values."""
    half, full = Policy(tiny_shape(), torch.bfloat16), random_policy(tiny_shape(), seed=0)
    with torch.no_grad():
        for name, view in views_of(half).items():
            view.copy_(views_of(full)[name].tensor())
            views_of(full)[name].copy_(view.tensor())
    return half, full


def test_a_step_in_bf16_is_near_the_one_in_float32(pair: tuple[Policy, Policy]) -> None:
    """Within a few parts in a hundred, bf16's resolution times the depth of a backward."""
    half, full = pair
    case = Case(kl=0.0, budget=40)
    (ours, gradients), (exact, wanted) = run_step(half, None, case), run_step(full, None, case)
    assert {gradient.dtype for gradient in gradients.values()} == {torch.float32}
    errors = relative_errors(gradients, wanted)
    worst = max(errors, key=errors.__getitem__)
    assert errors[worst] < 0.1, worst
    assert sorted(errors.values())[len(errors) // 2] < 0.02
    for key, difference in ours.compute.parity.differences.items():
        assert difference.dtype == torch.float32
        assert torch.allclose(difference, exact.compute.parity.differences[key], atol=0.1)


def test_recompute_in_bf16_is_bit_equal(pair: tuple[Policy, Policy]) -> None:
    _, kept = run_step(pair[0], None, Case(kl=0.0, deterministic=True))
    _, again = run_step(pair[0], None, Case(kl=0.0, deterministic=True, recompute=True))
    assert all(torch.equal(kept[name], again[name]) for name in kept)
