"""The importance ratio: its clip, its cap, and what a sequence's ratio is; and the KL beside them."""

from __future__ import annotations

from math import exp, log

import pytest
import torch

from rollplex.algorithms.base import Scored, Settings, Surrogate
from rollplex.algorithms.choose import ALGORITHMS
from rollplex.algorithms.loss import token_loss

# ratio, advantage -> loss, gradient to logp, whether the clip decided; low 0.2, high 0.3, cap 2
CLIP = [
    (1.0, 2.0, -2.0, -2.0, 0.0),
    (1.0, -2.0, 2.0, 2.0, 0.0),
    (1.1, 2.0, -2.2, -2.2, 0.0),
    (1.5, 2.0, -2.6, 0.0, 1.0),  # already pushed up far enough
    (0.5, 2.0, -1.0, -1.0, 0.0),  # went the wrong way: full gradient
    (1.5, -1.0, 1.5, 1.5, 0.0),
    (0.9, -1.0, 0.9, 0.9, 0.0),
    (0.5, -1.0, 0.8, 0.0, 1.0),
    (1.5, 0.0, 0.0, 0.0, 0.0),
    (7.0, -1.0, 2.0, 2.0, 0.0),  # no clip from above: the cap holds, and the token still learns by it
]


def score(
    name: str, ratios: list[float], advantages: list[float], lengths: tuple[int, ...] = (1,)
) -> tuple[Surrogate, list[float]]:
    """The surrogate of tokens with given ratios, and the gradient of its sum to their log probabilities."""
    behaviour = torch.full((len(ratios),), -9.0, dtype=torch.float64)
    logp = (behaviour + torch.tensor(ratios, dtype=torch.float64).log()).requires_grad_()
    advantage = torch.tensor(advantages, dtype=torch.float64)
    found = ALGORITHMS[name].surrogate(
        Scored(logp, behaviour, advantage, lengths), Settings(clip_low=0.2, clip_high=0.3, cap=2.0)
    )
    [gradient] = torch.autograd.grad(found.loss.sum(), logp)
    return found, gradient.tolist()


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "dapo", "reinforce_plus_plus", "gspo"])
@pytest.mark.parametrize(("ratio", "advantage", "loss", "gradient", "clipped"), CLIP)
def test_the_clip_away_from_ratio_one(
    name: str, ratio: float, advantage: float, loss: float, gradient: float, clipped: float
) -> None:
    """A response of one token, whose ratio is its sequence's."""
    found, slope = score(name, [ratio], [advantage])
    assert found.loss.item() == pytest.approx(loss)
    assert slope == pytest.approx([gradient])
    assert found.clipped.tolist() == [clipped]
    assert found.ratio.item() == pytest.approx(ratio)
    assert not found.ratio.requires_grad
    assert not found.clipped.requires_grad


def test_on_policy_the_gradient_is_the_advantage_and_the_clip_idle() -> None:
    logp = torch.tensor([-0.1, -2.0, -30.0], requires_grad=True)
    found = ALGORITHMS["grpo"].surrogate(
        Scored(logp, logp.detach(), torch.tensor([1.5, -0.5, 2.0]), (3,)), Settings(clip_low=1e-3, clip_high=1e-3)
    )
    found.loss.sum().backward()
    assert logp.grad is not None
    assert logp.grad.tolist() == [-1.5, 0.5, -2.0]
    assert found.clipped.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("ratio", "weight"), [(0.01, 0.01), (0.5, 0.5), (1.0, 1.0), (1.9, 1.9), (2.5, 2.0), (1e30, 2.0)]
)
@pytest.mark.parametrize("advantage", [1.0, -3.0])
def test_rloo_is_truncated_importance_sampling(ratio: float, weight: float, advantage: float) -> None:
    """min(ratio, cap) A grad log pi, on both sides of the cap and without a clip."""
    found, slope = score("rloo", [ratio], [advantage])
    assert found.loss.item() == pytest.approx(-weight * advantage)
    assert slope == pytest.approx([-weight * advantage])
    assert found.clipped.tolist() == [0.0]


@pytest.mark.parametrize(
    ("ratio", "weight", "clipped"), [(0.1, 0.8, 1.0), (0.9, 0.9, 0.0), (1.2, 1.2, 0.0), (5.0, 1.3, 1.0)]
)
def test_cispo_clips_the_weight_and_keeps_the_token(ratio: float, weight: float, clipped: float) -> None:
    found, slope = score("cispo", [ratio], [2.0])
    assert slope == pytest.approx([-weight * 2.0])
    assert found.loss.item() == pytest.approx(-weight * 2.0 * (log(ratio) - 9.0))
    assert found.clipped.tolist() == [clipped]


def test_cispo_is_capped_below_a_wide_clip() -> None:
    logp = torch.tensor([log(50.0)], requires_grad=True)
    scored = Scored(logp, torch.zeros(1), torch.ones(1), (1,))
    loss = ALGORITHMS["cispo"].surrogate(scored, Settings(clip_low=1.0, clip_high=9.0, cap=3.0)).loss
    [slope] = torch.autograd.grad(loss.sum(), logp)
    assert slope.item() == pytest.approx(-3.0)


def test_gspo_has_one_ratio_for_each_response() -> None:
    """Geometric means: 1.1 of (1.21, 1.0), and 0.9 of three; the others' tokens do not come in."""
    found, slope = score("gspo", [1.21, 1.0, 0.9, 0.9, 0.9], [1.0, 1.0, -2.0, -2.0, -2.0], (2, 3))
    assert found.ratio.tolist() == pytest.approx([1.1, 1.1, 0.9, 0.9, 0.9])
    assert found.loss.tolist() == pytest.approx([-1.1, -1.1, 1.8, 1.8, 1.8])
    # d/d logp of two times -1.1: each token's share of the mean is a half
    assert slope == pytest.approx([-1.1, -1.1, 1.8, 1.8, 1.8])


def test_gspo_clips_whole_responses() -> None:
    """Equation 5: a token of ratio 1 in a response that went too far learns nothing either."""
    found, slope = score("gspo", [4.0, 1.0, 1.0], [1.0, 1.0, 1.0], (2, 1))
    assert found.clipped.tolist() == [1.0, 1.0, 0.0]
    assert slope == pytest.approx([0.0, 0.0, -1.0])


def test_opd_learns_from_the_teacher_alone() -> None:
    logp = torch.tensor([-1.0, -2.0], requires_grad=True)
    scored = Scored(logp, logp.detach(), torch.tensor([100.0, -100.0]), (2,), torch.tensor([-0.5, -4.0]))
    found = token_loss(ALGORITHMS["opd"], scored, Settings(kl_estimator="k1"))
    [slope] = torch.autograd.grad(found.loss.sum(), logp)
    assert slope.tolist() == [-0.5, 2.0]
    assert found.kl is not None
    assert found.kl.tolist() == [-0.5, 2.0]
    with pytest.raises(ValueError, match=r"no log probabilities of model\.reference came"):
        token_loss(ALGORITHMS["opd"], Scored(logp, logp.detach(), torch.zeros(2), (2,)), Settings())


def test_opd_follows_the_reverse_kl_on_average() -> None:
    """Over all tokens, each as often as the student samples it: the gradient of KL(student || teacher)."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(30, generator=generator, dtype=torch.float64).requires_grad_()
    teacher = torch.randn(30, generator=generator, dtype=torch.float64).log_softmax(-1)
    logp = logits.log_softmax(-1)
    scored = Scored(logp, logp.detach(), torch.zeros(30), (1,) * 30, teacher)
    surrogate = ALGORITHMS["opd"].surrogate(scored, Settings())
    [found] = torch.autograd.grad((logp.detach().exp() * surrogate.loss).sum(), logits, retain_graph=True)
    [exact] = torch.autograd.grad((logp.exp() * (logp - teacher)).sum(), logits)
    assert torch.allclose(found, exact)


@pytest.mark.parametrize(
    ("estimator", "value", "slope"), [("k1", log(2), 1.0), ("k2", log(2) ** 2 / 2, log(2)), ("k3", log(2) - 0.5, 0.5)]
)
@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in ("opd", "cispo")])
def test_the_kl_is_added_by_its_coefficient_and_reported_without(
    name: str, estimator: str, value: float, slope: float
) -> None:
    """p = 0.5, q = 0.25, advantage 2."""
    logp = torch.tensor([log(0.5)], requires_grad=True)
    scored = Scored(logp, logp.detach(), torch.tensor([2.0]), (1,), torch.tensor([log(0.25)]))
    found = token_loss(ALGORITHMS[name], scored, Settings(kl_coefficient=0.1, kl_estimator=estimator))
    found.loss.sum().backward()
    assert float(found.loss.detach()) == pytest.approx(-2.0 + 0.1 * value)
    assert logp.grad is not None
    assert float(logp.grad) == pytest.approx(-2.0 + 0.1 * slope)
    assert found.kl is not None
    assert float(found.kl) == pytest.approx(value)
    assert not found.kl.requires_grad


def test_a_kl_without_reference_is_an_error() -> None:
    logp = torch.zeros(2)
    with pytest.raises(ValueError, match=r"algorithm\.kl\.coefficient is 0\.5, but no reference"):
        token_loss(ALGORITHMS["grpo"], Scored(logp, logp, logp, (2,)), Settings(kl_coefficient=0.5))


def test_a_large_difference_is_capped_not_infinite() -> None:
    """exp(200) is infinite in float32."""
    logp = torch.tensor([0.0, -200.0], requires_grad=True)
    scored = Scored(logp, torch.tensor([-200.0, 0.0]), torch.tensor([-1.0, 1.0]), (2,))
    for name in ("grpo", "rloo", "cispo", "gspo"):
        loss = ALGORITHMS[name].surrogate(scored, Settings()).loss
        [slope] = torch.autograd.grad(loss.sum(), logp)
        assert torch.isfinite(loss).all()
        assert torch.isfinite(slope).all()
        assert slope.abs().max() <= 2.0 * exp(1e-6)
