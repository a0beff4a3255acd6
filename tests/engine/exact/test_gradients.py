"""Same mathematics under every schedule: every parameter's gradient equals one full pass per sample (invariant 2)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from rollplex.policy.cut import Boundary
from rollplex.policy.policy import Policy
from tests.engine.exact.batch import REWARDS, Case, make_prompts, make_responses
from tests.engine.exact.harness import run_step
from tests.engine.exact.reference import Reference, grpo_by_hand, relative_errors
from tests.engine.tiny import MODEL_TYPES, hf_twin, random_policy, tiny_shape

LIMIT = 1e-5  # relative, per parameter tensor (DESIGN, invariant 2)


@pytest.fixture(scope="module", params=MODEL_TYPES)
def policies(request: pytest.FixtureRequest) -> tuple[Policy, Policy]:
    """The actor, and a reference that has drifted from it."""
    shape = tiny_shape(model_type=request.param)
    return random_policy(shape, seed=0), random_policy(shape, seed=1).requires_grad_(False)


@pytest.fixture(scope="module")
def references(policies: tuple[Policy, Policy]) -> dict[str, Reference]:
    actor, initial = policies
    return {
        normalization: grpo_by_hand(
            hf_twin(actor),
            hf_twin(initial),
            make_prompts(actor.shape),
            make_responses(),
            REWARDS,
            normalization=normalization,
            kl=Case.kl,
        )
        for normalization in ("token", "sequence")
    }


CASES = [
    *(
        Case(mode=mode, recompute=recompute, budget=budget, order=order)
        for order, (mode, recompute, budget) in enumerate(
            (mode, recompute, budget)
            for mode in ("serial", "overlap", "stream")
            for recompute in (False, True)
            for budget in (1, 40, 10_000)
        )
    ),
    Case(mode="serial", share=False),
    Case(mode="serial", share=False, budget=100, recompute=True),
    Case(mode="stream", run_ahead=1, order=5),
    Case(mode="overlap", run_ahead=2, budget=40),
    Case(mode="stream", deterministic=True, order=6),
    *(Case(mode=mode, normalization="sequence", order=7) for mode in ("serial", "overlap", "stream")),
]


def assert_within(gradients: dict[str, torch.Tensor], reference: dict[str, torch.Tensor]) -> None:
    errors = relative_errors(gradients, reference)
    worst = max(errors, key=errors.__getitem__)
    assert errors[worst] <= LIMIT, f"{worst}: {errors[worst]:.1e}"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_gradient_equals_the_full_pass(
    policies: tuple[Policy, Policy], references: dict[str, Reference], case: Case
) -> None:
    reference = references[case.normalization]
    result, gradients = run_step(*policies, case)
    assert_within(gradients, reference.gradients)
    loss = result.compute.sums.loss * result.updated.scale
    assert loss == pytest.approx(reference.loss, rel=1e-5, abs=1e-5)
    assert result.compute.parity.differences.keys() == reference.logprobs.keys()
    for key, difference in result.compute.parity.differences.items():
        # the double's engine said -1.0 for every token
        assert torch.allclose(difference, (-1.0 - reference.logprobs[key]).abs(), atol=1e-5), key


def test_the_limit_is_of_fp32_not_of_the_split(
    policies: tuple[Policy, Policy], references: dict[str, Reference]
) -> None:
    """Both the split and the full pass in fp32 are compared with the full pass in fp64; the figures are printed."""
    actor, initial = policies
    exact = grpo_by_hand(
        hf_twin(actor).double(),
        hf_twin(initial).double(),
        make_prompts(actor.shape),
        make_responses(),
        REWARDS,
        normalization="token",
        kl=Case.kl,
    )
    _, gradients = run_step(actor, initial, Case())
    split = max(relative_errors(gradients, exact.gradients).values())
    plain = max(relative_errors(references["token"].gradients, exact.gradients).values())
    print(f"worst parameter against fp64: split {split:.1e}, full pass in fp32 {plain:.1e}")
    assert split <= LIMIT


def test_a_lost_response_is_seen(
    policies: tuple[Policy, Policy], references: dict[str, Reference], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One response's key/value gradients do not reach the prefix: the check fails."""
    absorb = Boundary.absorb
    lost: list[Boundary] = []

    def drop_one(self: Boundary) -> None:
        if not lost:
            lost.append(self)
            for leaf in self.leaves:
                leaf.grad = None
        absorb(self)

    monkeypatch.setattr(Boundary, "absorb", drop_one)
    _, gradients = run_step(*policies, Case(budget=1))
    assert lost
    with pytest.raises(AssertionError, match=r"language_model|visual"):
        assert_within(gradients, references["token"].gradients)


def test_a_shifted_position_is_seen(policies: tuple[Policy, Policy], references: dict[str, Reference]) -> None:
    prompts = make_prompts(policies[0].shape)
    shifted = prompts[1].positions.clone()
    shifted[0, 8] += 1
    prompts[1] = replace(prompts[1], positions=shifted)
    _, gradients = run_step(*policies, Case(), prompts)
    with pytest.raises(AssertionError):
        assert_within(gradients, references["token"].gradients)


def test_swapped_videos_are_seen(policies: tuple[Policy, Policy], references: dict[str, Reference]) -> None:
    """Two videos of equal shape change places: same tokens, other pixels."""
    prompts = make_prompts(policies[0].shape)
    (first,), (image, second) = prompts[0].media, prompts[1].media
    prompts[0] = replace(prompts[0], media=(second,))
    prompts[1] = replace(prompts[1], media=(image, first))
    _, gradients = run_step(*policies, Case(), prompts)
    with pytest.raises(AssertionError):
        assert_within(gradients, references["token"].gradients)


@pytest.mark.parametrize("case", [Case(mode="serial"), Case(mode="overlap"), Case(mode="stream", deterministic=True)])
def test_gradients_are_bit_equal_whatever_finishes_first(policies: tuple[Policy, Policy], case: Case) -> None:
    _, first = run_step(*policies, case)
    for order in (1, 2, 3):
        _, again = run_step(*policies, replace(case, order=order))
        assert all(torch.equal(first[name], again[name]) for name in first)


@pytest.mark.parametrize("part", ["vision", "projector", "language"])
def test_a_frozen_part_changes_no_other_gradient(
    references: dict[str, Reference], policies: tuple[Policy, Policy], part: str
) -> None:
    actor = random_policy(policies[0].shape, seed=0)
    actor.freeze([part])
    _, gradients = run_step(actor, policies[1], Case())
    marks = {"vision": "visual.", "projector": "merger", "language": "language_model."}

    def frozen(name: str) -> bool:
        in_merger = "merger" in name
        return (marks[part] in name or (part == "language" and name == "lm_head.weight")) and (
            part != "vision" or not in_merger
        )

    assert {name for name in references["token"].gradients if not frozen(name)} == gradients.keys()
    assert_within(gradients, {name: references["token"].gradients[name] for name in gradients})


def test_the_prefix_is_computed_once_for_its_group(policies: tuple[Policy, Policy]) -> None:
    prompts = make_prompts(policies[0].shape)
    prefix = sum(len(prompt.token_ids) - 1 for prompt in prompts)
    vision = sum({media.key: media.tokens(2) for prompt in prompts for media in prompt.media}.values())
    shared, _ = run_step(*policies, Case())
    # actor and reference each compute a prefix once, and encode each distinct medium once
    assert shared.compute.sums.passes["prefix"] == 2 * prefix
    assert shared.compute.sums.passes["vision"] == 2 * vision
    alone, _ = run_step(*policies, Case(mode="serial", share=False))
    assert alone.compute.sums.passes["prefix"] == 0
    assert alone.compute.sums.passes["suffix"] > shared.compute.sums.passes["suffix"] + 2 * 3 * prefix
