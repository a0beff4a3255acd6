"""What stands beside a sample in a pack does not change it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rollplex.batch import Prompt
from rollplex.policy.policy import Policy
from tests.engine.exact.batch import Case, make_responses
from tests.engine.exact.harness import run_step
from tests.engine.exact.reference import grpo_by_hand, relative_errors
from tests.engine.policy.passes import SplitPass, gradients_of, group_of, score
from tests.engine.tiny import hf_logprobs, medium, prompt, random_policy, text


def image_prompts(policy: Policy) -> list[Prompt]:
    """Prompts of 5 and of 9 tokens, one image each."""
    shape = policy.shape
    small, large = medium("image", (1, 2, 2), 1, shape), medium("image", (1, 4, 4), 2, shape)
    short = prompt("short", shape, [text(1, 3), small, text(1, 4)])
    long = prompt("long", shape, [text(1, 5), large, text(2, 6)])
    assert (len(short.token_ids), len(long.token_ids)) == (5, 9)
    return [short, long]


@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.5])
def test_two_prompts_packed_are_as_each_alone(
    tiny_policy: Policy, tiny_twin: Any, split: bool, temperature: float
) -> None:
    prompts = image_prompts(tiny_policy)
    responses = [[text(4, 30), text(1, 31)], [text(7, 32), text(2, 33)]]
    groups = [group_of(g, item, *responses[g], split=split) for g, item in enumerate(prompts)]
    packed = score(tiny_policy, *groups, temperature=temperature)
    assert packed.keys() == {(0, 0), (0, 1), (1, 0), (1, 1)}
    for (g, i), logp in packed.items():
        alone = score(tiny_policy, group_of(g, prompts[g], responses[g][i], split=split), temperature=temperature)
        assert torch.allclose(logp, alone[g, 0], atol=1e-5)
        assert torch.allclose(logp, hf_logprobs(tiny_twin, prompts[g], responses[g][i], temperature), atol=1e-5)


@pytest.mark.parametrize("split", [True, False])
def test_the_first_token_of_each_packed_sample_is_predicted_by_its_own_prompt(
    tiny_policy: Policy, tiny_twin: Any, split: bool
) -> None:
    items = [prompt(str(seed), tiny_policy.shape, [text(3 + seed, seed)]) for seed in range(3)]
    responses = [text(2, 40), text(1, 41), text(3, 42)]
    packed = score(tiny_policy, *(group_of(g, item, responses[g], split=split) for g, item in enumerate(items)))
    firsts = [float(packed[g, 0][0]) for g in range(3)]
    exact = [float(hf_logprobs(tiny_twin, item, responses[g], 1.0)[0]) for g, item in enumerate(items)]
    assert firsts == pytest.approx(exact, abs=1e-5)
    # a neighbour's prompt would have given something else, so this can be seen
    for g in range(3):
        stolen = float(hf_logprobs(tiny_twin, items[(g + 1) % 3], responses[g], 1.0)[0])
        assert abs(stolen - firsts[g]) > 1e-2


def test_padding_1234_rows_to_1240_changes_nothing(tiny_policy: Policy) -> None:
    item = image_prompts(tiny_policy)[1]
    responses = [text(200, seed) for seed in range(50, 56)] + [text(34, 56)]
    group = group_of(0, item, *responses)
    with torch.no_grad():
        plain, padded = SplitPass(tiny_policy, [group]), SplitPass(tiny_policy, [group], pad_to=8)
    assert (plain.pack.token_ids.numel(), padded.pack.token_ids.numel()) == (1234, 1240)
    assert padded.logp.shape == (1234,)
    assert torch.allclose(padded.logp, plain.logp, atol=1e-5)
    assert torch.allclose(padded.entropy, plain.entropy, atol=1e-5)


def test_padding_gives_no_gradient(tiny_policy: Policy) -> None:
    item = image_prompts(tiny_policy)[0]
    groups = [group_of(0, item, text(3, 60), text(2, 61))]
    _, plain = gradients_of(tiny_policy, groups)
    _, padded = gradients_of(tiny_policy, groups, pad_to=8)
    assert max(relative_errors(padded, plain).values()) < 1e-5


@pytest.mark.parametrize("normalization", ["token", "sequence"])
def test_no_micro_batch_changes_the_gradient(tiny_policy: Policy, tiny_twin: Any, normalization: str) -> None:
    """Responses of 1, 2, 3 and 10 tokens, one, two or four to a pass."""
    items = [image_prompts(tiny_policy)[1]]
    lengths = [[1, 2, 3, 10]]
    rewards = [[1.0, 0.0, 0.0, 0.5]]
    exact = grpo_by_hand(tiny_twin, None, items, make_responses(lengths), rewards, normalization=normalization, kl=0.0)
    for budget in (1, 3, 5, 13, 16):
        case = Case(budget=budget, normalization=normalization, kl=0.0)
        result, ours = run_step(tiny_policy, None, case, items, make_responses(lengths))
        assert max(relative_errors(ours, exact.gradients).values()) < 1e-5, budget
        assert result.compute.sums.loss * result.updated.scale == pytest.approx(exact.loss, abs=1e-6)


def test_a_sampled_placeholder_is_an_ordinary_token(tiny_policy: Policy, tiny_twin: Any) -> None:
    """Vision scatter and positions come from the prompt alone."""
    shape = tiny_policy.shape
    item = image_prompts(tiny_policy)[1]
    response = [*text(2, 70), shape.image_token, shape.video_token, shape.vision_start_token, *text(2, 71)]
    plain = prompt("no media", shape, [text(4, 72)])
    for given in (item, plain):
        exact = hf_logprobs(tiny_twin, given, response, 1.0)
        for split in (True, False):
            ours = score(tiny_policy, group_of(0, given, response, split=split))[0, 0]
            assert torch.allclose(ours, exact, atol=1e-5)


def test_a_one_token_prompt_has_an_empty_prefix(tiny_policy: Policy, tiny_twin: Any) -> None:
    item = prompt("one", tiny_policy.shape, [text(1, 80)])
    assert tiny_policy.prefix(item, []) is None
    responses = [text(3, 81), text(1, 82)]
    for split in (True, False):
        found = score(tiny_policy, group_of(0, item, *responses, split=split))
        for i, response in enumerate(responses):
            assert torch.allclose(found[0, i], hf_logprobs(tiny_twin, item, response, 1.0), atol=1e-5)


def test_other_pixels_are_another_prompt(tiny_policy: Policy) -> None:
    """Equal ids and grid: another key, other boundary KV, other log probabilities."""
    shape = tiny_policy.shape
    items = [prompt("p", shape, [text(2, 1), medium("image", (1, 4, 4), seed, shape), text(2, 2)]) for seed in (1, 2)]
    assert items[0].token_ids == items[1].token_ids
    assert torch.equal(items[0].positions, items[1].positions)
    assert items[0].key != items[1].key
    response = text(4, 90)
    first, second = (score(tiny_policy, group_of(0, item, response))[0, 0] for item in items)
    assert (first - second).abs().max() > 1e-2
    keys = []
    for item in items:
        boundary = tiny_policy.prefix(item, [tiny_policy.encode(media) for media in item.media])
        assert boundary is not None
        keys.append(boundary.layer(0)[0])
    ((start,),) = items[0].media_starts
    assert torch.equal(keys[0][:start], keys[1][:start])
    assert not torch.allclose(keys[0][start:], keys[1][start:], atol=1e-2)


def test_equal_content_is_one_key_whoever_decoded_it(tiny_policy: Policy) -> None:
    shape = tiny_policy.shape
    made = [medium("video", (2, 4, 4), 7, shape, seconds=1.0) for _ in range(2)]
    slower = medium("video", (2, 4, 4), 7, shape, seconds=0.5)
    assert made[0].key == made[1].key
    assert slower.key != made[0].key, "timing moves positions"
    assert random_policy(shape, seed=3).encode(made[0]).tensor.shape == (8, shape.hidden)
