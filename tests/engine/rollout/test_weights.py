"""The engine reads the trainer's memory: all of it, at every publish, and nothing stale."""

from __future__ import annotations

import dataclasses
import re

import pytest
import torch

from rollplex.batch import Prompt
from rollplex.policy.vision import build_vision
from rollplex.rollout.protocol import Sampling
from rollplex.weights.share import RolloutWeights, WeightLayoutError, install, share_weights
from tests.engine.conftest import Rig
from tests.engine.rollout.helpers import run, worst_difference
from tests.engine.tiny import medium, prompt, text

# by model type: every kind of parameter
LANGUAGE = [
    "embedding.word_embeddings.weight",
    "decoder.layers.0.input_layernorm.weight",
    "decoder.layers.0.self_attention.linear_qkv.weight",
    "decoder.layers.0.self_attention.linear_proj.weight",
    "decoder.layers.0.pre_mlp_layernorm.weight",
    "decoder.layers.0.mlp.linear_fc1.weight",
    "decoder.layers.0.mlp.linear_fc2.weight",
    "decoder.final_layernorm.weight",
    "output_layer.weight",
]
VISUAL = [
    "patch_embed.proj.weight",
    "blocks.0.norm1.weight",
    "blocks.0.norm2.weight",
    *(f"blocks.0.attn.{part}.{leaf}" for part in ("qkv", "proj") for leaf in ("weight", "bias")),
]
COMMON = [f"language.{name}" for name in LANGUAGE] + [f"visual.{name}" for name in VISUAL]
QWEN3_MERGER = [f"{part}.{leaf}" for part in ("norm", "linear_fc1", "linear_fc2") for leaf in ("weight", "bias")]
OWN = {
    "qwen2_5_vl": [
        "language.decoder.layers.0.self_attention.linear_qkv.bias",
        *(f"visual.blocks.0.mlp.{part}_proj.{leaf}" for part in ("gate", "up", "down") for leaf in ("weight", "bias")),
        "visual.merger.ln_q.weight",
        *(f"visual.merger.mlp.{part}.{leaf}" for part in (0, 2) for leaf in ("weight", "bias")),
    ],
    "qwen3_vl": [
        "language.decoder.layers.0.self_attention.q_layernorm.weight",
        "language.decoder.layers.0.self_attention.k_layernorm.weight",
        "visual.patch_embed.proj.bias",
        "visual.pos_embed.weight",
        "visual.blocks.0.norm1.bias",
        "visual.blocks.0.norm2.bias",
        *(f"visual.blocks.0.mlp.linear_fc{part}.{leaf}" for part in (1, 2) for leaf in ("weight", "bias")),
        *(f"visual.merger.{leaf}" for leaf in QWEN3_MERGER),
        *(f"visual.deepstack_merger_list.0.{leaf}" for leaf in QWEN3_MERGER),
    ],
}
NAMES = [(model_type, name) for model_type, own in OWN.items() for name in COMMON + own]


def batch(rig: Rig) -> list[Prompt]:
    image = medium("image", (1, 8, 12), 1, rig.shape)
    video = medium("video", (2, 8, 8), 3, rig.shape, seconds=0.5)
    return [prompt("media", rig.shape, [text(40, 1), image, text(3, 2), video, text(9, 2)])]


def test_names_are_every_kind_of_parameter(rig: Rig) -> None:
    def kinds(names: list[str]) -> set[str]:
        numbered = r"\.(layers|blocks|deepstack_merger_list)\.\d+\."
        return {re.sub(numbered, r".\1.N.", name) for name in names}

    names = [name for model_type, name in NAMES if model_type == rig.shape.model_type]
    assert kinds(names) == kinds([name for name, _ in rig.policy.named_parameters()])


@pytest.mark.parametrize(("session_rig", "name"), NAMES, indirect=["session_rig"])
def test_update_in_place_is_visible(rig: Rig, name: str) -> None:
    prompts = batch(rig)
    before = run(rig.engine, prompts, 1, Sampling(max_tokens=5))  # fills both caches with the old weights' work
    rig.engine.retire()
    parameter = rig.policy.get_parameter(name)
    with torch.no_grad():
        parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 0.2)
    rig.engine.publish()
    assert worst_difference(rig.policy, prompts, before) > 1e-3, "the change must matter, or this test cannot fail"
    after = run(rig.engine, prompts, 1, Sampling(max_tokens=5))
    assert worst_difference(rig.policy, prompts, after) <= 1e-4


@pytest.mark.parametrize("part", ["language", "vision"])
def test_same_prompt_after_a_layer_grew_tenfold(rig: Rig, part: str) -> None:
    """Case 37: prefix KV and vision features follow the weight version."""
    prompts = batch(rig)
    run(rig.engine, prompts, 2)
    rig.engine.retire()
    layer = rig.policy.get_submodule("language.decoder.layers.0" if part == "language" else "visual.blocks.0")
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(10 if parameter.dim() > 1 else 1)
    rig.engine.publish()
    assert worst_difference(rig.policy, prompts, run(rig.engine, prompts, 2)) <= 1e-4


@pytest.mark.parametrize("stale", ["encoder cache", "prefix cache", "copies"])
def test_stale_work_breaks_parity(rig: Rig, stale: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a publish without one of its parts would do: the first-step check of the trainer sees it."""
    prompts = batch(rig)
    run(rig.engine, prompts, 1)
    rig.engine.retire()
    with torch.no_grad():
        rig.policy.get_parameter("visual.blocks.0.attn.proj.weight").mul_(2)
        rig.policy.get_parameter("language.decoder.layers.0.self_attention.linear_qkv.weight").mul_(1.3)
    if stale == "encoder cache":
        monkeypatch.setattr(rig.engine._engine, "reset_encoder_cache", lambda: None)
    elif stale == "prefix cache":
        monkeypatch.setattr(rig.engine._engine, "reset_prefix_cache", lambda: True)
    else:
        monkeypatch.setattr(RolloutWeights, "refresh", lambda self: None)
    rig.engine.publish()
    assert worst_difference(rig.policy, prompts, run(rig.engine, prompts, 1)) > 1e-3
    monkeypatch.undo()
    rig.engine.publish()
    assert worst_difference(rig.policy, prompts, run(rig.engine, prompts, 1)) <= 1e-4


def test_every_parameter_is_aliased_or_copied(rig: Rig) -> None:
    """Case 43 for one rank, both directions; the bytes add up."""
    sources = [p for group in rig.weights.sources.values() for p in group] + [c.source for c in rig.weights.copies]
    trainer = list(rig.policy.parameters())
    assert {id(p) for p in sources} == {id(p) for p in trainer}
    assert len(sources) == len(trainer)
    (model,) = rig.engine._engine.apply_model(lambda model: model)
    installed = dict(model.named_parameters())
    assert {name: t.data_ptr() for name, t in rig.weights.tensors().items()} == {
        name: p.data_ptr() for name, p in installed.items()
    }
    qkv = sum(p.nbytes for name, p in rig.policy.named_parameters() if "linear_qkv" in name)
    assert rig.weights.report() == {"alias": sum(p.nbytes for p in trainer) - qkv, "copy": qkv}


def test_leftovers_are_named(rig: Rig) -> None:
    (model,) = rig.engine._engine.apply_model(lambda model: model)
    name = "visual.blocks.0.norm1.weight"
    fewer = {key: view for key, view in rig.weights.views.items() if key != name}
    with pytest.raises(WeightLayoutError, match=f"trainer does not have: {name}"):
        install(model, dataclasses.replace(rig.weights, views=fewer))
    more = {**rig.weights.views, "language_model.model.extra.weight": torch.zeros(1)}
    with pytest.raises(WeightLayoutError, match=r"rollout model does not have: language_model\.model\.extra\.weight"):
        install(model, dataclasses.replace(rig.weights, views=more))
    narrow = {**rig.weights.views, name: torch.zeros(3)}
    with pytest.raises(WeightLayoutError, match=rf"{name}: the engine wants \(64,\), the trainer has \(3,\)"):
        install(model, dataclasses.replace(rig.weights, views=narrow))
    half = {**rig.weights.views, name: rig.weights.views[name].half()}
    with pytest.raises(WeightLayoutError, match=rf"{name}: the engine wants torch.float32, the trainer has"):
        install(model, dataclasses.replace(rig.weights, views=half))


def test_trainer_parameter_without_a_place_is_named(rig: Rig) -> None:
    rig.policy.language.register_parameter("adapter", torch.nn.Parameter(torch.zeros(2)))
    try:
        with pytest.raises(WeightLayoutError, match=r"without a place in the rollout engine: language\.adapter"):
            share_weights(rig.policy.language, rig.policy.visual)
    finally:
        del rig.policy.language.adapter


@pytest.mark.parametrize("session_rig", ["qwen2_5_vl"], indirect=True)
def test_unfused_tower_is_refused(rig: Rig) -> None:
    tower = build_vision(rig.shape, torch.float32)
    with pytest.raises(WeightLayoutError, match=r"blocks\.0\.mlp\.gate_proj\.weight.*fuse_gate_up"):
        share_weights(rig.policy.language, tower)


def test_moved_parameter_is_found_at_publish(rig: Rig) -> None:
    parameter = rig.policy.language.decoder.final_layernorm.weight
    memory = parameter.data
    parameter.data = memory.clone()
    try:
        with pytest.raises(WeightLayoutError, match=r"language_model\.model\.norm\.weight.*update parameters in place"):
            rig.engine.publish()
    finally:
        parameter.data = memory


def test_weight_version_reaches_vllm(rig: Rig) -> None:
    engine = rig.engine._engine
    version = rig.engine.publish()
    (received,) = engine.collective_rpc(lambda worker: worker.weight_transfer_engine.version)
    assert received == version
