"""A prefix and the suffixes that resume from its boundary KV are one full pass, gradients included."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from rollplex.api.shapes import ModelShape
from rollplex.batch import Prompt
from rollplex.policy import passes
from rollplex.policy.attention import AttentionContext, Segment
from rollplex.policy.language import megatron_config
from rollplex.policy.policy import Policy
from tests.engine.exact.reference import full_pass_logprobs
from tests.engine.policy.passes import gradients_of, group_of, score, weighed
from tests.engine.tiny import medium, prompt, text

RESPONSES = (text(3, 20), text(1, 21), text(6, 22))
Gradients = dict[str, torch.Tensor]


@pytest.fixture
def policy(tiny_policy: Policy) -> Iterator[Policy]:
    yield tiny_policy
    tiny_policy.recompute = False


def video_prompt(shape: ModelShape) -> Prompt:
    return prompt("video", shape, [text(2, 1), medium("video", (2, 4, 4), 2, shape, seconds=1.0), text(4, 3)])


def full_pass(twin: Any, item: Prompt, responses: tuple[list[int], ...]) -> tuple[torch.Tensor, Gradients]:
    twin.zero_grad(set_to_none=True)
    loss = weighed(torch.cat([full_pass_logprobs(twin, item, response, 1.0) for response in responses]))
    loss.backward()
    return loss.detach(), {name: parameter.grad for name, parameter in twin.named_parameters()}


def cosines(ours: Gradients, exact: Gradients) -> dict[str, float]:
    assert ours.keys() == exact.keys()
    return {
        n: float(torch.cosine_similarity(ours[n].double().flatten(), g.double().flatten(), 0)) for n, g in exact.items()
    }


@pytest.mark.parametrize("recompute", [False, True])
def test_every_gradient_is_that_of_the_unsplit_pass(policy: Policy, tiny_twin: Any, recompute: bool) -> None:
    """Key and value projections, embedding, projector and vision tower included."""
    policy.recompute = recompute
    item = video_prompt(policy.shape)
    exact_loss, exact = full_pass(tiny_twin, item, RESPONSES)
    loss, ours = gradients_of(policy, [group_of(0, item, *RESPONSES)])
    assert float(loss) == pytest.approx(float(exact_loss), rel=1e-6)
    own = {
        "qwen2_5_vl": ("v_proj.bias", "visual.merger.mlp.0"),
        "qwen3_vl": ("q_norm", "k_norm", "visual.pos_embed", "visual.deepstack_merger_list.1.linear_fc1"),
    }
    for part in ("k_proj.weight", "embed_tokens", "visual.blocks.0.attn.qkv", *own[policy.shape.model_type]):
        assert any(part in name for name in ours), part
    found = cosines(ours, exact)
    worst = min(found, key=found.__getitem__)
    assert found[worst] > 1 - 1e-6, worst


def test_recompute_is_never_reentrant(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reentrant checkpointing loses gradients of captured tensors with a correct loss; Megatron's own is off."""
    config = megatron_config(policy.shape, torch.float32)
    assert (config.recompute_granularity, config.recompute_method, config.recompute_num_layers) == (None, None, None)
    used: list[bool] = []

    def watched(function: Any, *arguments: Any, use_reentrant: bool, **rest: Any) -> Any:
        used.append(use_reentrant)
        return checkpoint(function, *arguments, use_reentrant=use_reentrant, **rest)

    policy.recompute = True
    monkeypatch.setattr(passes, "checkpoint", watched)
    gradients_of(policy, [group_of(0, video_prompt(policy.shape), *RESPONSES)])
    assert used == [False] * 2 * policy.shape.layers, "each layer of prefix and suffixes"


@pytest.mark.parametrize("recompute", [False, True])
def test_keys_are_outputs_that_no_recompute_drops_or_doubles(policy: Policy, recompute: bool) -> None:
    """Two backwards through the same prefix, so each layer is run again twice."""
    policy.recompute = recompute
    item = video_prompt(policy.shape)
    length = len(item.token_ids) - 1
    boundary = policy.prefix(item, [policy.encode(media) for media in item.media])
    assert boundary is not None
    outputs = boundary._outputs
    assert outputs is not None
    table = policy.language.embedding.word_embeddings.weight
    first = torch.autograd.grad(outputs, [table], [torch.ones_like(out) for out in outputs], retain_graph=True)[0]
    again = torch.autograd.grad(outputs, [table], [torch.ones_like(out) for out in outputs])[0]
    assert torch.equal(first, again)
    assert first.abs().sum() > 0
    assert {tuple(tensor.shape) for tensor in [*outputs, *boundary.leaves]} == {
        (length, 1, policy.shape.kv_heads, policy.shape.head_dim)
    }
    assert boundary.length == length
    assert len(boundary.leaves) == 2 * policy.shape.layers


def test_the_last_layers_boundary_is_that_of_its_full_pass(policy: Policy) -> None:
    """The shortcut (keys and values alone) against the whole layer; and the values do not keep the fused QKV alive."""
    item = video_prompt(policy.shape)
    features = [policy.encode(media) for media in item.media]
    boundary = policy.prefix(item, features)
    assert boundary is not None
    angles = policy._angles(item.positions[:, :-1])
    visual = policy._visual(item, features)
    assert visual is not None
    hidden = passes.embed(policy.language, torch.tensor(item.token_ids[:-1]), visual)
    for index, layer in enumerate(policy.language.decoder.layers):
        context = AttentionContext([Segment(0, hidden.size(0))])
        hidden, _ = layer(hidden, attention_mask=context, rotary_pos_emb=angles)
        for ours, whole in zip(boundary.layer(index), (context.key, context.value), strict=True):
            assert whole is not None
            assert torch.allclose(ours, whole, atol=1e-6)
            assert ours.untyped_storage().nbytes() == ours.nbytes
        hidden = visual.behind(index, hidden)


def test_a_prefix_stops_where_nothing_more_is_needed(policy: Policy) -> None:
    """Of the last layer only keys and values, no final norm, no lm_head: the rest gets no gradient from a prefix."""
    from rollplex.memory.gradients import Gradients as Sums
    from tests.engine.exact.harness import gradients_by_hf_name

    item = prompt("text", policy.shape, [text(6, 5)])
    sums = Sums(policy.named_parameters())
    boundary = policy.prefix(item, [])
    assert boundary is not None
    sum(leaf.square().sum() for leaf in boundary.leaves).backward()  # type: ignore[union-attr]
    boundary.absorb()
    boundary.backward()
    sums.close()
    reached = gradients_by_hf_name(policy, dict(sums.items()))
    last = f"model.language_model.layers.{policy.shape.layers - 1}."
    assert {n.removeprefix(last) for n in reached if n.startswith(last)} >= {"input_layernorm.weight"}
    assert reached[f"{last}self_attn.q_proj.weight"].abs().sum() == 0
    assert reached[f"{last}self_attn.k_proj.weight"].abs().sum() > 0
    for part in (
        f"{last}mlp",
        f"{last}self_attn.o_proj",
        f"{last}post_attention",
        "model.language_model.norm",
        "lm_head",
    ):
        assert not [name for name in reached if name.startswith(part)], part


def test_media_and_features_must_match(policy: Policy) -> None:
    item = video_prompt(policy.shape)
    other = policy.encode(medium("image", (1, 4, 4), 2, policy.shape))
    with pytest.raises(ValueError, match="prompt 'video' has 1 media, but 0 features came"):
        policy.prefix(item, [])
    with pytest.raises(ValueError, match=r"medium at token \d+ has 8 placeholders, but the tower gave 4 features"):
        policy.prefix(item, [other])


def test_scores_of_a_shared_prefix_and_of_repeated_prompts_agree(policy: Policy, tiny_twin: Any) -> None:
    item = video_prompt(policy.shape)
    shared = score(policy, group_of(0, item, *RESPONSES))
    repeated = score(policy, group_of(0, item, *RESPONSES, split=False))
    for key, logp in shared.items():
        exact = full_pass_logprobs(tiny_twin, item, RESPONSES[key[1]], 1.0)
        assert torch.allclose(logp, exact, atol=1e-5)
        assert torch.allclose(repeated[key], exact, atol=1e-5)
