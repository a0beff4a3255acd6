"""Every algorithm through the step: its gradients are those of the paper's formula over full passes of transformers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from rollplex.algorithms.choose import ALGORITHMS
from rollplex.api.algorithm import OPTIONS
from rollplex.batch import Prompt, Response
from rollplex.policy.policy import Policy
from rollplex.step.metrics import step_metrics
from rollplex.step.timeline import Yardstick
from tests.engine.exact.batch import MAX_TOKENS, Case, make_prompts
from tests.engine.exact.harness import run_step
from tests.engine.exact.reference import full_pass_logprobs, relative_errors
from tests.engine.tiny import hf_twin, random_policy, text, tiny_shape
from tests.unit.algorithms.formulas import FORMULAS, Numbers, Sample

LIMIT = 1e-5  # relative, per parameter tensor (DESIGN, invariant 2)
LENGTHS = ([1, 2, 3, 10], [4, 0, 3, 2], [2, 1, 3, 1])
REWARDS = ([1.0, 0.0, 0.0, 0.5], [10.0, 0.0, 0.5, 0.0], [0.3] * 4)
NUMBERS = Numbers(low=0.1, high=0.15, cap=1.2, max_tokens=MAX_TOKENS, buffer=18, penalty=0.5)


@dataclass
class Passes:
    """The batch, and one full pass per sample of it that every formula differentiates."""

    actor: Policy
    initial: Policy
    prompts: list[Prompt]
    responses: dict[tuple[int, int], Response]
    parameters: dict[str, torch.Tensor]
    samples: list[list[Sample]]

    def exact(self, name: str, ratio: str, kl: float) -> tuple[float, dict[str, torch.Tensor]]:
        """Loss and gradients by the formula."""
        groups = [
            [replace(sample, old=sample.logp.detach()) if ratio == "one" else sample for sample in group]
            for group in self.samples
        ]
        loss = FORMULAS[name](groups, replace(NUMBERS, beta=kl))
        found = torch.autograd.grad(loss, list(self.parameters.values()), retain_graph=True)
        return loss.item(), dict(zip(self.parameters, found, strict=True))


@pytest.fixture(scope="module")
def passes() -> Passes:
    """A video, a text alone, and the first video again with equal rewards; the engine's numbers are off by some."""
    actor = random_policy(tiny_shape(), seed=0)
    initial = random_policy(tiny_shape(), seed=1).requires_grad_(False)
    first, _, alone, again = make_prompts(actor.shape)
    prompts = [first, alone, again]
    twin, teacher = hf_twin(actor), hf_twin(initial)
    noise = torch.Generator().manual_seed(5)
    samples: list[list[Sample]] = [[], [], []]
    responses = {}
    for group, prompt in enumerate(prompts):
        for index, (length, reward) in enumerate(zip(LENGTHS[group], REWARDS[group], strict=True)):
            tokens = text(length, 100 + 10 * group + index)
            logp = reference = torch.zeros(0)
            if tokens:
                logp = full_pass_logprobs(twin, prompt, tokens, 1.0)
                with torch.no_grad():
                    reference = full_pass_logprobs(teacher, prompt, tokens, 1.0)
            old = logp.detach() + 0.2 * torch.randn(length, generator=noise)
            samples[group].append(Sample(logp, old, reference, reward))
            responses[group, index] = Response(
                group, index, tuple(tokens), tuple(old.tolist()), "length", text=str(reward)
            )
    return Passes(actor, initial, prompts, responses, dict(twin.named_parameters()), samples)


def case_of(name: str, ratio: str, mode: str, kl: float) -> Case:
    """The job of an algorithm with the numbers above, as far as it has them."""
    own = OPTIONS[name]
    algorithm: dict[str, Any] = {"name": name, "ratio": ratio, "ratioCap": NUMBERS.cap, "normalization": None}
    algorithm["clip"] = None if own.clip is None else {"low": NUMBERS.low, "high": NUMBERS.high}
    algorithm["kl"] = None if own.kl is None else {"coefficient": kl}
    algorithm["overlong"] = {"buffer": NUMBERS.buffer, "penalty": NUMBERS.penalty} if own.overlong else None
    return Case(mode=mode, order=3, budget=40, algorithm=algorithm)


CASES = [
    *((name, "one", mode, 0.3) for name, mode in zip(ALGORITHMS, 3 * ("serial", "overlap", "stream"), strict=False)),
    *(
        (name, "rollout", mode, 0.0)
        for name, mode in zip(ALGORITHMS, 3 * ("stream", "serial", "overlap"), strict=False)
    ),
    # advantages over the batch, under every schedule
    ("reinforce_plus_plus", "rollout", "stream", 0.3),
    ("reinforce_plus_plus", "one", "stream", 0.0),
    ("reinforce_plus_plus", "one", "serial", 0.0),
]


@pytest.mark.parametrize(("name", "ratio", "mode", "kl"), CASES)
def test_every_gradient_equals_the_formula_over_full_passes(
    passes: Passes, name: str, ratio: str, mode: str, kl: float
) -> None:
    if OPTIONS[name].kl is None:
        kl = 0.0
    loss, exact = passes.exact(name, ratio, kl)
    case = case_of(name, ratio, mode, kl)
    result, gradients = run_step(passes.actor, passes.initial, case, passes.prompts, passes.responses)
    errors = relative_errors(gradients, exact)
    worst = max(errors, key=errors.__getitem__)
    assert errors[worst] <= LIMIT, f"{worst}: {errors[worst]:.1e}"
    assert result.compute.sums.loss * result.updated.scale == pytest.approx(loss, rel=1e-5, abs=1e-5)
    metrics = step_metrics(result, Yardstick())
    # equal rewards: nothing to learn where they are measured against their group, and there is no KL
    idle = ALGORITHMS[name].scope == "group" and (kl == 0 or name == "dapo")
    assert metrics["groups/skipped"] == int(idle)
    assert metrics["groups/filtered"] == int(name == "dapo")
    scored = [key for key in result.compute.parity.differences if key[0] == 2]
    assert len(scored) == (0 if idle else 4)
    assert ("ratio/mean" in metrics) == (ratio == "rollout")


def test_a_teacher_of_another_size_is_distilled(passes: Passes) -> None:
    """Its own tower, its own boundary KV; only tokens, patches and positions are the student's."""
    small = tiny_shape()
    larger = replace(
        small, hidden=192, layers=3, ffn=320, heads=6, kv_heads=3, vocabulary=512, vision=replace(small.vision, depth=3)
    )
    teacher = random_policy(larger, seed=9).requires_grad_(False)
    twin = hf_twin(teacher)
    samples: list[list[Sample]] = []
    for group, prompt in enumerate(passes.prompts):
        samples.append([])
        for index, sample in enumerate(passes.samples[group]):
            tokens = passes.responses[group, index].token_ids
            with torch.no_grad():
                scores = full_pass_logprobs(twin, prompt, tokens, 1.0) if tokens else torch.zeros(0)
            samples[-1].append(replace(sample, reference=scores))
    _, exact = replace(passes, samples=samples).exact("opd", "one", 0.0)
    result, gradients = run_step(
        passes.actor, teacher, case_of("opd", "one", "stream", 0.0), passes.prompts, passes.responses
    )
    errors = relative_errors(gradients, exact)
    assert max(errors.values()) <= LIMIT
    reverse = torch.cat([sample.logp.detach() - sample.reference for group in samples for sample in group])
    assert step_metrics(result, Yardstick())["kl/mean"] == pytest.approx(reverse.mean().item(), rel=1e-4)


def test_the_metrics_of_the_ratio_are_those_of_the_tokens(passes: Passes) -> None:
    case = case_of("grpo", "rollout", "stream", 0.3)
    result, _ = run_step(passes.actor, passes.initial, case, passes.prompts, passes.responses)
    metrics = step_metrics(result, Yardstick())
    ratios = torch.cat([(s.logp.detach() - s.old).exp() for group in passes.samples for s in group])
    assert metrics["ratio/mean"] == pytest.approx(ratios.mean().item(), rel=1e-4)
    assert metrics["ratio/max"] == pytest.approx(ratios.max().item(), rel=1e-4)
    assert metrics["ratio/capped_share"] == pytest.approx((ratios > NUMBERS.cap).float().mean().item())
    clipped = metrics["ratio/clipped_share"]
    assert isinstance(clipped, float)
    assert 0 < clipped < 1
