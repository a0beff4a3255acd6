"""Weights of a Hugging Face folder, in and out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from rollplex.policy.policy import Policy, load_policy
from rollplex.weights.hf import HfView, fuse_gate_up, hf_views
from tests.engine.tiny import MODEL_TYPES, hf_twin, make_folder, random_policy, tiny_shape

Tensors = dict[str, torch.Tensor]


def views_of(policy: Policy) -> dict[str, HfView]:
    return hf_views(dict(policy.language.named_parameters()), dict(policy.visual.named_parameters()), policy.shape)


def exported(policy: Policy) -> Tensors:
    return {name: view.tensor().detach().clone() for name, view in views_of(policy).items()}


@pytest.fixture(params=MODEL_TYPES)
def model_type(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[False, True], ids=["untied", "tied"])
def saved(request: pytest.FixtureRequest, model_type: str, tmp_path: Path) -> tuple[Policy, Path]:
    """A policy, and a folder with its config but no weights yet."""
    policy = random_policy(tiny_shape(request.param, model_type), seed=8)
    return policy, make_folder(tmp_path / "model", policy.shape)


def assert_equal(ours: Mapping[str, torch.Tensor], theirs: Mapping[str, torch.Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name


def test_the_views_are_all_of_the_model_and_nothing_else(saved: tuple[Policy, Path]) -> None:
    policy, _ = saved
    twin = hf_twin(policy)
    theirs = {name: parameter for name, parameter in twin.named_parameters() if parameter.requires_grad}
    views = views_of(policy)
    assert {name: view.shape for name, view in views.items()} == {n: tuple(p.shape) for n, p in theirs.items()}
    elements = sum(parameter.numel() for parameter in policy.parameters())
    assert sum(view.tensor().numel() for view in views.values()) == elements
    storages = {parameter.untyped_storage().data_ptr() for parameter in policy.parameters()}
    assert {view.view.untyped_storage().data_ptr() for view in views.values()} <= storages


def test_weights_come_back_bit_for_bit(saved: tuple[Policy, Path]) -> None:
    policy, folder = saved
    save_file(exported(policy), folder / "model.safetensors")
    loaded = load_policy(folder)
    assert loaded.shape.tied_embeddings == policy.shape.tied_embeddings
    assert_equal(dict(loaded.named_parameters()), dict(policy.named_parameters()))
    assert_equal(exported(loaded), exported(policy))


def test_transformers_own_folder_is_read(saved: tuple[Policy, Path]) -> None:
    policy, folder = saved
    hf_twin(policy).save_pretrained(folder)
    assert_equal(dict(load_policy(folder).named_parameters()), dict(policy.named_parameters()))


def test_shards_of_an_older_checkpoint_in_bf16_are_read(saved: tuple[Policy, Path]) -> None:
    policy, folder = saved
    old = {
        name.replace("model.language_model.", "model.").replace("model.visual.", "visual."): tensor.bfloat16()
        for name, tensor in exported(policy).items()
    }
    assert any(name.startswith("model.layers.") for name in old)
    assert any(name.startswith("visual.blocks.") for name in old)
    if policy.shape.tied_embeddings:
        old["lm_head.weight"] = old["model.embed_tokens.weight"].clone()  # some store it twice
    names = sorted(old)
    for number, part in enumerate((names[::2], names[1::2]), start=1):
        save_file({name: old[name] for name in part}, folder / f"model-{number:05d}-of-00002.safetensors")
    assert_equal(exported(load_policy(folder)), {n: t.bfloat16().float() for n, t in exported(policy).items()})
    half = load_policy(folder, torch.bfloat16)
    assert {parameter.dtype for parameter in half.parameters()} == {torch.bfloat16}
    assert_equal(exported(half), {n: t.bfloat16() for n, t in exported(policy).items()})


def without(tensors: Tensors) -> None:
    del tensors["model.language_model.layers.1.self_attn.k_proj.bias"]


def beside(tensors: Tensors) -> None:
    tensors["model.language_model.layers.2.mlp.up_proj.weight"] = torch.zeros(1)


def misshaped(tensors: Tensors) -> None:
    tensors["model.visual.patch_embed.proj.weight"] = torch.zeros(64, 3, 2, 14, 15)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (without, r"1 tensors are missing, first 'model\.language_model\.layers\.1\.self_attn\.k_proj\.bias'"),
        (beside, r"'model\.language_model\.layers\.2\.mlp\.up_proj\.weight' has no place in .*does config\.json"),
        (
            misshaped,
            r"'model\.visual\.patch_embed\.proj\.weight' is \(64, 3, 2, 14, 15\), .* says \(64, 3, 2, 14, 14\)",
        ),
    ],
)
def test_a_folder_that_does_not_fit_is_refused_by_name(
    tmp_path: Path, spoil: Callable[[Tensors], None], said: str
) -> None:
    policy = random_policy(tiny_shape())
    folder = make_folder(tmp_path / "model", policy.shape)
    tensors = exported(policy)
    spoil(tensors)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(ValueError, match=said):
        load_policy(folder)


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model", tiny_shape())
    with pytest.raises(ValueError, match=r"holds no \*\.safetensors; model\.path must be"):
        load_policy(folder)


def test_the_towers_gate_and_up_are_one_storage() -> None:
    for block in random_policy(tiny_shape()).visual.blocks:  # type: ignore[union-attr]
        for leaf in ("weight", "bias"):
            gate, up = getattr(block.mlp.gate_proj, leaf), getattr(block.mlp.up_proj, leaf)
            assert up.data_ptr() == gate.data_ptr() + gate.nbytes


def test_fusing_changes_no_value_and_leaves_other_modules_alone() -> None:
    class Mlp(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate_proj, self.up_proj, self.down_proj = nn.Linear(4, 6), nn.Linear(4, 6), nn.Linear(6, 4, bias=False)

    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate_proj, self.up_proj = nn.Linear(4, 6, bias=False), nn.Linear(4, 6, bias=False)

    for kind in (Mlp, Bare):
        model = nn.ModuleList([kind(), nn.Linear(4, 4)])
        before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        fuse_gate_up(model)
        assert_equal(dict(model.named_parameters()), before)
        assert all(parameter.requires_grad for parameter in model.parameters())


def test_freezing_by_part(model_type: str) -> None:
    def trained(*parts: str) -> set[str]:
        policy = random_policy(tiny_shape(model_type=model_type))
        policy.freeze(parts)
        return {
            name.split(".")[0] + (".merger" if "merger" in name else "")
            for name, parameter in policy.named_parameters()
            if parameter.requires_grad
        }

    assert trained() == {"language", "visual", "visual.merger"}
    assert trained("vision") == {"language", "visual.merger"}
    assert trained("projector", "vision") == {"language"}
    assert trained("language") == {"visual", "visual.merger"}


def test_a_part_that_matches_nothing_is_refused(tiny_policy: Any) -> None:
    with pytest.raises(ValueError, match=r"model\.freeze: 'tower' matches no module; choose from vision, projector"):
        tiny_policy.freeze(["vision", "tower"])
    assert all(parameter.requires_grad for parameter in tiny_policy.parameters())
