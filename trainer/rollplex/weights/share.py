"""The rollout engine's weights as views of the trainer's: one copy of the actor.

At equal tensor parallel size (here 1) vLLM's and the trainer's tensors are the same bytes in the same order, except for
the language model's fused QKV: Megatron-Core interleaves it per query group ``[q .. q, k, v]``, vLLM wants
``[q; k; v]``. Those are copied, everything else is aliased, and :meth:`RolloutWeights.report` says how much of each.

Shapes: h = hidden, g = KV heads (query groups), q = query heads per group, d = head size.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

LANGUAGE = "language_model."  # vLLM's prefixes
VISUAL = "visual."

_LANGUAGE_NAMES = {
    "embedding.word_embeddings.weight": "model.embed_tokens.weight",
    "decoder.final_layernorm.weight": "model.norm.weight",
    "output_layer.weight": "lm_head.weight",
}
_LAYER_NAMES = {
    "input_layernorm.weight": "input_layernorm.weight",
    "pre_mlp_layernorm.weight": "post_attention_layernorm.weight",
    "self_attention.linear_proj.weight": "self_attn.o_proj.weight",
    "self_attention.q_layernorm.weight": "self_attn.q_norm.weight",
    "self_attention.k_layernorm.weight": "self_attn.k_norm.weight",
    "mlp.linear_fc1.weight": "mlp.gate_up_proj.weight",  # both stack the gate's rows on the up projection's
    "mlp.linear_fc2.weight": "mlp.down_proj.weight",
}
_QKV = re.compile(r"self_attention\.linear_qkv\.(weight|bias)")
_LAYER = re.compile(r"decoder\.layers\.(\d+)\.(.+)")
_GATE_OR_UP = re.compile(r"(.+\.mlp\.)(gate|up)_proj\.(weight|bias)")


class WeightLayoutError(RuntimeError):
    """The engine's and the trainer's parameters do not cover each other, or an alias no longer aliases."""


@dataclass(frozen=True)
class Copy:
    """A tensor of the engine that must be re-laid-out: ``target`` is [(g * q + 2 * g) * d, ...] as ``[q; k; v]``."""

    name: str
    source: nn.Parameter
    target: torch.Tensor
    groups: int
    head_dim: int

    @torch.no_grad()
    def refresh(self) -> None:
        """Write the source's present values into the target."""
        tail = self.source.shape[1:]
        blocks = self.source.view(self.groups, -1, self.head_dim, *tail)  # [g, q + 2, d, ...]
        keys = self.groups * self.head_dim
        queries = self.target.size(0) - 2 * keys
        self.target[:queries].view(self.groups, -1, self.head_dim, *tail).copy_(blocks[:, :-2])
        self.target[queries:-keys].view(self.groups, self.head_dim, *tail).copy_(blocks[:, -2])
        self.target[-keys:].view(self.groups, self.head_dim, *tail).copy_(blocks[:, -1])


@dataclass(frozen=True)
class RolloutWeights:
    """Everything that vLLM's model has as a parameter.

    ``views`` maps vLLM's parameter names to tensors over trainer storage, ``copies`` are the re-laid-out rest,
    ``sources`` are the trainer's parameters behind each view (two where vLLM fuses them).
    """

    views: Mapping[str, torch.Tensor]
    copies: tuple[Copy, ...]
    sources: Mapping[str, tuple[nn.Parameter, ...]]

    def tensors(self) -> dict[str, torch.Tensor]:
        """All tensors to install, by vLLM's parameter names."""
        return {**self.views, **{copy.name: copy.target for copy in self.copies}}

    def refresh(self) -> None:
        """Bring the copies up to date; the views need nothing."""
        for copy in self.copies:
            copy.refresh()

    def check(self, installed: Mapping[str, torch.Tensor]) -> None:
        """Raise WeightLayoutError if the engine or the trainer has moved a parameter to other memory."""
        for name, view in self.views.items():
            if name not in installed:
                continue  # a tied output matrix that the engine knows under the embedding's name only
            address = self.sources[name][0].data_ptr()
            if not view.data_ptr() == installed[name].data_ptr() == address:
                raise WeightLayoutError(
                    f"rollout weight {name!r} no longer aliases the trainer's memory (engine at "
                    f"{installed[name].data_ptr():#x}, trainer at {address:#x}): update parameters in place"
                )
        for copy in self.copies:
            if installed[copy.name].data_ptr() != copy.target.data_ptr():
                raise WeightLayoutError(f"rollout weight {copy.name!r} no longer reads its re-laid-out copy")

    def report(self) -> dict[str, int]:
        """Bytes by class: ``alias`` counts trainer storage once, ``copy`` is what the engine costs extra."""
        seen = {view.data_ptr(): view.nbytes for view in self.views.values()}
        return {"alias": sum(seen.values()), "copy": sum(copy.target.nbytes for copy in self.copies)}


def share_weights(language: nn.Module, visual: nn.Module) -> RolloutWeights:
    """View a trainer's modules as vLLM's model of the same family at tensor parallel size 1.

    Args:
        language: Megatron-Core GPTModel.
        visual: transformers' vision tower, its gate and up projections fused
            (:func:`rollplex.weights.hf.fuse_gate_up`).

    Raises:
        WeightLayoutError: a trainer parameter has no place in the engine, or gate and up are not adjacent.
    """
    views: dict[str, torch.Tensor] = {}
    sources: dict[str, tuple[nn.Parameter, ...]] = {}
    copies: list[Copy] = []

    def alias(name: str, view: torch.Tensor, *parameters: nn.Parameter) -> None:
        views[name], sources[name] = view, parameters

    config: Any = language.config
    left_over = []
    for name, parameter in language.named_parameters():
        layer = _LAYER.fullmatch(name)
        leaf = layer[2] if layer else name
        if layer and (match := _QKV.fullmatch(leaf)):
            target = torch.empty_like(parameter, requires_grad=False)
            theirs = f"{LANGUAGE}model.layers.{layer[1]}.self_attn.qkv_proj.{match[1]}"
            copies.append(Copy(theirs, parameter, target, config.num_query_groups, config.kv_channels))
        elif layer and leaf in _LAYER_NAMES:
            alias(f"{LANGUAGE}model.layers.{layer[1]}.{_LAYER_NAMES[leaf]}", parameter.detach(), parameter)
        elif name in _LANGUAGE_NAMES:
            alias(LANGUAGE + _LANGUAGE_NAMES[name], parameter.detach(), parameter)
        else:
            left_over.append(f"language.{name}")
    if LANGUAGE + "lm_head.weight" not in views:  # tied
        embedding = LANGUAGE + _LANGUAGE_NAMES["embedding.word_embeddings.weight"]
        alias(LANGUAGE + "lm_head.weight", views[embedding], *sources[embedding])

    tower = dict(visual.named_parameters())
    for name, parameter in tower.items():
        match = _GATE_OR_UP.fullmatch(name)
        if match is None:
            alias(VISUAL + name, parameter.detach(), parameter)
        elif match[2] == "gate":
            up = tower[f"{match[1]}up_proj.{match[3]}"]
            alias(f"{VISUAL}{match[1]}gate_up_proj.{match[3]}", _stacked(name, parameter, up), parameter, up)
    if left_over:
        raise WeightLayoutError(f"trainer parameters without a place in the rollout engine: {', '.join(left_over)}")
    weights = RolloutWeights(views, tuple(copies), sources)
    weights.refresh()
    return weights


def _stacked(name: str, first: nn.Parameter, second: nn.Parameter) -> torch.Tensor:
    """One view over two parameters that lie behind each other in one storage."""
    adjacent = (
        first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
        and first.is_contiguous()
        and second.is_contiguous()
        and first.data_ptr() + first.nbytes == second.data_ptr()
    )
    if not adjacent:
        raise WeightLayoutError(
            f"vision parameter {name!r} and its up_proj are not adjacent in memory, so the engine's gate_up_proj "
            "cannot alias them: call rollplex.weights.hf.fuse_gate_up on the tower before sharing it"
        )
    shape = (first.size(0) + second.size(0), *first.shape[1:])
    return first.detach().as_strided(shape, first.stride(), first.storage_offset())


def install(model: nn.Module, weights: RolloutWeights) -> None:
    """Put every shared tensor in the place of vLLM's parameter of that name.

    Raises:
        WeightLayoutError: names of either side that the other lacks, or a shape or dtype that differs.
    """
    tensors = weights.tensors()
    expected = dict(model.named_parameters(remove_duplicate=False))
    extra = set(tensors) - set(expected)
    if missing := sorted(set(expected) - set(tensors)):
        raise WeightLayoutError(f"rollout parameters that the trainer does not have: {', '.join(missing)}")
    if extra := extra - {LANGUAGE + "lm_head.weight"}:
        raise WeightLayoutError(f"shared weights that the rollout model does not have: {', '.join(sorted(extra))}")
    for name, old in expected.items():
        module_name, _, leaf = name.rpartition(".")
        module = model.get_submodule(module_name)
        tensor = tensors[name]
        rows = getattr(module, "org_vocab_size", old.size(0))  # vLLM pads its vocabulary, but reads no padding
        if tensor.shape != old.shape and tensor.shape != (rows, *old.shape[1:]):
            raise WeightLayoutError(
                f"{name}: the engine wants {tuple(old.shape)}, the trainer has {tuple(tensor.shape)}"
            )
        if tensor.dtype != old.dtype:
            raise WeightLayoutError(f"{name}: the engine wants {old.dtype}, the trainer has {tensor.dtype}")
        module.register_parameter(leaf, nn.Parameter(tensor, requires_grad=False))
