"""Hugging Face names and Megatron-Core storage: the same bytes, seen under both names.

:func:`hf_views` is the one table of it. Loading copies into the views, exporting reads them, and comparing gradients
with a transformers model lays gradients out through the same table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from rollplex.api.shapes import ModelShape


@dataclass(frozen=True)
class HfView:
    """A Hugging Face tensor as a view of trainer storage; ``view`` may have more dimensions than ``shape``."""

    view: torch.Tensor
    shape: tuple[int, ...]

    def copy_(self, source: torch.Tensor) -> None:
        """Write a tensor of ``shape`` into the storage."""
        self.view.copy_(source.reshape(self.view.shape))

    def tensor(self) -> torch.Tensor:
        """The Hugging Face tensor (a copy only where the storage is interleaved)."""
        return self.view.reshape(self.shape)


def hf_views(
    language: Mapping[str, torch.Tensor], visual: Mapping[str, torch.Tensor], shape: ModelShape
) -> dict[str, HfView]:
    """All tensors of a checkpoint by their transformers 5 names, as views of ``language`` and ``visual``.

    Args:
        language: GPTModel parameter names -> tensors (parameters, or gradients of the same shapes).
        visual: names of transformers' vision tower -> tensors.

    Missing names are left out, so that a mapping of gradients of the trainable part works too.
    """
    views: dict[str, HfView] = {}

    def put(name: str, source: str, view: torch.Tensor | None = None) -> None:
        if source in language:
            tensor = language[source] if view is None else view
            views[name] = HfView(tensor, tuple(tensor.shape))

    heads, groups, size = shape.heads, shape.kv_heads, shape.head_dim
    put("model.language_model.embed_tokens.weight", "embedding.word_embeddings.weight")
    put("model.language_model.norm.weight", "decoder.final_layernorm.weight")
    if not shape.tied_embeddings:
        put("lm_head.weight", "output_layer.weight")
    for layer in range(shape.layers):
        ours, theirs = f"decoder.layers.{layer}.", f"model.language_model.layers.{layer}."
        put(theirs + "input_layernorm.weight", ours + "input_layernorm.weight")
        put(theirs + "post_attention_layernorm.weight", ours + "pre_mlp_layernorm.weight")
        put(theirs + "self_attn.o_proj.weight", ours + "self_attention.linear_proj.weight")
        put(theirs + "self_attn.q_norm.weight", ours + "self_attention.q_layernorm.weight")
        put(theirs + "self_attn.k_norm.weight", ours + "self_attention.k_layernorm.weight")
        put(theirs + "mlp.down_proj.weight", ours + "mlp.linear_fc2.weight")
        fc1 = language.get(ours + "mlp.linear_fc1.weight")
        if fc1 is not None:
            put(theirs + "mlp.gate_proj.weight", ours + "mlp.linear_fc1.weight", fc1[: shape.ffn])
            put(theirs + "mlp.up_proj.weight", ours + "mlp.linear_fc1.weight", fc1[shape.ffn :])
        for leaf in ("weight", "bias"):
            fused = language.get(f"{ours}self_attention.linear_qkv.{leaf}")
            if fused is None:
                continue
            tail = tuple(fused.shape[1:])
            # Megatron interleaves [q .. q, k, v] per query group
            blocks = fused.view(groups, heads // groups + 2, size, *tail)
            views[f"{theirs}self_attn.q_proj.{leaf}"] = HfView(blocks[:, :-2], (heads * size, *tail))
            views[f"{theirs}self_attn.k_proj.{leaf}"] = HfView(blocks[:, -2], (groups * size, *tail))
            views[f"{theirs}self_attn.v_proj.{leaf}"] = HfView(blocks[:, -1], (groups * size, *tail))
    views |= {f"model.visual.{name}": HfView(tensor, tuple(tensor.shape)) for name, tensor in visual.items()}
    return views


def canonical_name(name: str) -> str:
    """The transformers 5 name of a tensor that older checkpoints call ``model.layers...`` or ``visual...``."""
    if name.startswith("visual."):
        return "model." + name
    if name.startswith("model.") and not name.startswith(("model.visual.", "model.language_model.")):
        return "model.language_model." + name.removeprefix("model.")
    return name


def read_safetensors(folder: str | Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors of a folder's safetensors files, one at a time, under their canonical names."""
    files = sorted(Path(folder).glob("*.safetensors"))
    if not files:
        raise ValueError(f"{folder} holds no *.safetensors; model.path must be a Hugging Face folder with weights")
    for file in files:
        try:
            with safe_open(file, framework="pt") as handle:
                for name in handle.keys():  # noqa: SIM118 (not a mapping)
                    yield canonical_name(name), handle.get_tensor(name)
        except SafetensorError as error:
            raise ValueError(f"{file} cannot be read ({error}); is it whole? copy it again") from None


@torch.no_grad()
def load_folder(language: Any, visual: nn.Module, shape: ModelShape, folder: str | Path) -> None:
    """Fill a policy's modules from a folder; every tensor must be found, of the right shape, and nothing left over."""
    views = hf_views(dict(language.named_parameters()), dict(visual.named_parameters()), shape)
    missing = set(views)
    for name, tensor in read_safetensors(folder):
        if name == "lm_head.weight" and shape.tied_embeddings:
            continue  # some folders store the tied matrix twice
        view = views.get(name)
        if view is None:
            raise ValueError(f"{folder}: tensor {name!r} has no place in {shape.name}; does config.json belong to it?")
        if tuple(tensor.shape) != view.shape:
            raise ValueError(f"{folder}: tensor {name!r} is {tuple(tensor.shape)}, config.json says {view.shape}")
        view.copy_(tensor)
        missing.discard(name)
    if missing:
        raise ValueError(f"{folder}: {len(missing)} tensors are missing, first {sorted(missing)[0]!r}")


def fuse_gate_up(visual: nn.Module) -> None:
    """Lay gate and up of each vision MLP out as the two halves of one storage, as the rollout engine reads them."""
    for module in visual.modules():
        gate, up = getattr(module, "gate_proj", None), getattr(module, "up_proj", None)
        if not isinstance(gate, nn.Linear) or not isinstance(up, nn.Linear):
            continue
        for leaf in ("weight", "bias"):
            first, second = getattr(gate, leaf), getattr(up, leaf)
            if first is None:
                continue
            fused = torch.cat([first.detach(), second.detach()])
            setattr(gate, leaf, nn.Parameter(fused[: first.size(0)]))
            setattr(up, leaf, nn.Parameter(fused[first.size(0) :]))
