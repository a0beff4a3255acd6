"""The one table between Hugging Face names and the trainer's storage, on tensors whose values are their row numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from rollplex.api.shapes import ModelShape, VisionShape
from rollplex.weights.hf import canonical_name, hf_views

VISION = VisionShape(depth=1, hidden=8, heads=2, intermediate=16, full_attention_blocks=(0,))
SHAPE = ModelShape("toy", hidden=32, layers=1, ffn=6, heads=8, kv_heads=2, vocabulary=10, vision=VISION)
QKV = "decoder.layers.0.self_attention.linear_qkv."
ATTENTION = "model.language_model.layers.0.self_attn."


def rows(count: int, width: int = 0) -> torch.Tensor:
    """A tensor whose every row holds its number."""
    numbers = torch.arange(float(count))
    return numbers[:, None].expand(count, width).clone() if width else numbers


@pytest.mark.parametrize("leaf", ["weight", "bias"])
def test_qkv_is_interleaved_by_query_group(leaf: str) -> None:
    """8 query and 2 KV heads of size 4: Megatron's rows are [4 queries, key, value] for each of the two groups."""
    fused = rows(48, 32 if leaf == "weight" else 0)
    views = hf_views({QKV + leaf: fused}, {}, SHAPE)
    found = {name.removeprefix(ATTENTION): view.tensor() for name, view in views.items()}
    first = {name: tensor if tensor.dim() == 1 else tensor[:, 0] for name, tensor in found.items()}
    assert first[f"q_proj.{leaf}"].tolist() == [*range(16), *range(24, 40)]
    assert first[f"k_proj.{leaf}"].tolist() == [*range(16, 20), *range(40, 44)]
    assert first[f"v_proj.{leaf}"].tolist() == [*range(20, 24), *range(44, 48)]
    for name, view in views.items():
        before = view.tensor().clone()
        view.copy_(before + 100)
        assert torch.equal(view.tensor(), before + 100), name
    assert torch.equal(fused, rows(48, 32 if leaf == "weight" else 0) + 100), "every row was written, and once"


def test_norms_of_queries_and_keys_have_the_names_of_qwen3() -> None:
    """A head size of its own: 8 heads of 6 are more than the 32 of hidden."""
    shape = replace(SHAPE, model_type="qwen3_vl", head_size=6)
    ours = "decoder.layers.0.self_attention."
    norms = {ours + "q_layernorm.weight": rows(6), ours + "k_layernorm.weight": rows(6) + 10}
    views = hf_views({**norms, QKV + "weight": rows(72, 32)}, {}, shape)
    assert views[ATTENTION + "q_norm.weight"].tensor()[0] == 0
    assert views[ATTENTION + "k_norm.weight"].tensor()[0] == 10
    assert {name: view.shape for name, view in views.items() if "proj" in name} == {
        ATTENTION + "q_proj.weight": (48, 32),
        ATTENTION + "k_proj.weight": (12, 32),
        ATTENTION + "v_proj.weight": (12, 32),
    }


def test_gate_and_up_are_the_halves_of_the_first_mlp_matrix() -> None:
    fused = rows(12, 32)
    views = hf_views({"decoder.layers.0.mlp.linear_fc1.weight": fused}, {}, SHAPE)
    mlp = "model.language_model.layers.0.mlp."
    assert views[mlp + "gate_proj.weight"].tensor()[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert views[mlp + "up_proj.weight"].tensor()[:, 0].tolist() == [6, 7, 8, 9, 10, 11]
    assert all(
        view.tensor().untyped_storage().data_ptr() == fused.untyped_storage().data_ptr() for view in views.values()
    )


def test_a_tied_matrix_has_one_name() -> None:
    tensors = {"embedding.word_embeddings.weight": rows(10, 32), "output_layer.weight": rows(10, 32)}
    untied, tied = hf_views(tensors, {}, SHAPE), hf_views(tensors, {}, replace(SHAPE, tied_embeddings=True))
    assert untied.keys() - tied.keys() == {"lm_head.weight"}


def test_names_of_missing_tensors_are_left_out() -> None:
    assert hf_views({}, {}, SHAPE) == {}
    assert list(hf_views({}, {"merger.ln_q.weight": rows(8)}, SHAPE)) == ["model.visual.merger.ln_q.weight"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("model.layers.3.mlp.up_proj.weight", "model.language_model.layers.3.mlp.up_proj.weight"),
        ("model.embed_tokens.weight", "model.language_model.embed_tokens.weight"),
        ("model.norm.weight", "model.language_model.norm.weight"),
        ("visual.blocks.0.attn.qkv.weight", "model.visual.blocks.0.attn.qkv.weight"),
        ("lm_head.weight", "lm_head.weight"),
    ],
)
def test_names_of_older_checkpoints(old: str, new: str) -> None:
    assert canonical_name(old) == new
    assert canonical_name(new) == new
