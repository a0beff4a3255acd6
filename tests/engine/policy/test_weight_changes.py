"""Weights that change between steps: boundary KV and features follow, wherever they are kept."""

from __future__ import annotations

import pytest
import torch

from rollplex.policy.policy import Policy
from rollplex.step.runner import StepResult
from tests.engine.exact.batch import Case, make_prompts
from tests.engine.policy.steps import Setup
from tests.engine.tiny import hf_logprobs, hf_twin, random_policy, tiny_shape


def assert_follows(setup: Setup, result: StepResult) -> None:
    """The step's log probabilities are those of the weights as they are now."""
    twin = hf_twin(setup.actor)
    for (group, sample), difference in result.compute.parity.differences.items():
        exact = hf_logprobs(twin, setup.prompts[group], result.responses[group, sample].token_ids, 1.0)
        assert torch.allclose(difference, (-1.0 - exact).abs(), atol=1e-4), (group, sample)


LAYERS = [
    "language.decoder.layers.0.self_attention.linear_qkv.weight",
    "visual.blocks.0.attn.qkv.weight",
    "visual.merger.mlp.2.weight",
]


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_scaled_between_steps_is_followed(name: str) -> None:
    """Boundary KV and features of the same prompts are computed anew."""
    setup = Setup()
    first = setup.run()
    with torch.no_grad():
        setup.actor.get_parameter(name).mul_(10.0)
    second = setup.run(3)
    assert_follows(setup, second)
    assert second.compute.sums.passes == first.compute.sums.passes
    changed = [
        not torch.allclose(difference, first.compute.parity.differences[key], atol=1e-2)
        for key, difference in second.compute.parity.differences.items()
    ]
    assert any(changed)


def test_features_are_kept_across_steps_only_where_the_tower_is_frozen() -> None:
    prompts = make_prompts(tiny_shape())
    tokens = sum({media.key: media.tokens(2) for prompt in prompts for media in prompt.media}.values())

    def encoded(*frozen: str, other_reference: bool = False) -> list[int]:
        actor = random_policy(tiny_shape(), seed=0)
        actor.freeze(frozen)
        reference = random_policy(tiny_shape(), seed=1 if other_reference else 0).requires_grad_(False)
        setup = Setup(actor, reference, Case())
        return [setup.run(step).compute.sums.passes["vision"] for step in (2, 3)]

    assert encoded() == [2 * tokens, tokens], "the reference's are kept, the actor's are encoded anew"
    assert encoded("vision") == [2 * tokens, tokens], "the projector changes them"
    assert encoded("vision", "projector") == [tokens, 0], "one set for both models"
    assert encoded("vision", "projector", other_reference=True) == [2 * tokens, tokens], "the towers differ"


def test_a_frozen_tower_is_not_taken_for_that_of_another_reference() -> None:
    """The reference sees with its own tower, frozen or not: the KL says so."""

    def kl(*frozen: str) -> float:
        actor = random_policy(tiny_shape(), seed=0)
        actor.freeze(frozen)
        result = Setup(actor, random_policy(tiny_shape(), seed=1).requires_grad_(False), Case()).run()
        return result.compute.sums.kl / result.compute.sums.tokens

    assert kl("vision", "projector") == pytest.approx(kl(), rel=1e-5)


def test_the_boundary_of_a_prompt_follows_its_layer(tiny_policy: Policy) -> None:
    """No key of a prompt hides the weights' version: the same prompt object gives other KV."""
    item = make_prompts(tiny_policy.shape)[0]

    def keys() -> tuple[torch.Tensor, torch.Tensor]:
        boundary = tiny_policy.prefix(item, [tiny_policy.encode(media) for media in item.media])
        assert boundary is not None
        return boundary.layer(0)[0].detach(), boundary.layer(1)[0].detach()

    before = keys()
    weight = tiny_policy.language.decoder.layers[0].mlp.linear_fc2.weight
    with torch.no_grad():
        weight.mul_(10.0)
    after = keys()
    with torch.no_grad():
        weight.div_(10.0)
    assert torch.equal(before[0], after[0]), "layer 0's keys come before its MLP"
    assert not torch.allclose(before[1], after[1], atol=1e-2)
