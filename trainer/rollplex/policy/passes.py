"""The two passes over the language model: a prefix that leaves boundary KV, and packed suffixes that read it.

Shapes: T = rows of the pass, H = hidden, k = KV heads, d = head size. Activations are [T, 1, H] (Megatron's order).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from megatron.core.models.common.embeddings.rope_utils import apply_rotary_pos_emb
from megatron.core.tensor_parallel import copy_to_tensor_model_parallel_region
from torch.utils.checkpoint import checkpoint

from rollplex.policy.attention import AttentionContext, Segment
from rollplex.policy.cut import Boundary


@dataclass(frozen=True, slots=True)
class Visual:
    """What media put into a pass: ``rows`` [m], and by level what goes there, each [m, H].

    Level 0 takes the place of the rows' embeddings; level i + 1 (deepstack) is added to the output of decoder layer i.
    Which rows those are comes from the prompt alone; a *sampled* placeholder id is an ordinary token.
    """

    rows: torch.Tensor
    levels: tuple[torch.Tensor, ...]

    def into(self, hidden: torch.Tensor) -> torch.Tensor:
        """Embeddings [T, 1, H] with the features in their places."""
        return hidden.index_copy(0, self.rows, self.levels[0][:, None].to(hidden.dtype))

    def behind(self, layer: int, hidden: torch.Tensor) -> torch.Tensor:
        """A layer's output [T, 1, H] with what deepstack adds to it."""
        if layer + 1 >= len(self.levels):
            return hidden
        return hidden.index_add(0, self.rows, self.levels[layer + 1][:, None].to(hidden.dtype))


def visual_rows(pieces: Sequence[tuple[Sequence[int], Sequence[torch.Tensor]]]) -> Visual | None:
    """Lay media out: of each the first rows of its equally long runs, and its features by level; None without any."""
    if not pieces:
        return None
    rows = []
    for starts, levels in pieces:
        run = torch.arange(levels[0].size(0) // len(starts), device=levels[0].device)
        rows += [start + run for start in starts]
    return Visual(
        torch.cat(rows), tuple(torch.cat(parts) for parts in zip(*(levels for _, levels in pieces), strict=True))
    )


def embed(language: Any, token_ids: torch.Tensor, visual: Visual | None = None) -> torch.Tensor:
    """Embeddings [T, 1, H] of ids [T], vision features in the rows of their placeholders."""
    hidden: torch.Tensor = language.embedding.word_embeddings(token_ids[None]).transpose(0, 1)
    return hidden if visual is None else visual.into(hidden)


def prefix_pass(
    language: Any, hidden: torch.Tensor, angles: torch.Tensor, recompute: bool, visual: Visual | None = None
) -> list[torch.Tensor]:
    """Run a prefix [P, 1, H] and return its boundary KV ``[k0, v0, k1, v1, ...]``, each [P, 1, k, d].

    Stops where nothing more is needed: the last layer gives only keys and values; no final norm, no lm_head.
    """
    layers = language.decoder.layers
    segments = [Segment(0, hidden.size(0))]
    kept: list[torch.Tensor] = []
    for index, layer in enumerate(layers[:-1]):
        # keys and values are outputs of the block, so a recompute can neither drop nor double them
        hidden, key, value = _maybe_checkpoint(recompute, _layer, layer, hidden, angles, segments, ())
        kept += [key, value.contiguous()]  # values are a view of the fused QKV output: do not keep all of it alive
        hidden = hidden if visual is None else visual.behind(index, hidden)
    kept += _maybe_checkpoint(recompute, _keys_and_values, layers[-1], hidden, angles)
    return kept


def suffix_pass(
    language: Any,
    hidden: torch.Tensor,
    angles: torch.Tensor,
    segments: Sequence[Segment],
    boundaries: Sequence[Boundary],
    recompute: bool,
    visual: Visual | None = None,
) -> torch.Tensor:
    """Run packed rows [T, 1, H] over the boundary KV that their segments name; returns hidden states [T, 1, H]."""
    for index, layer in enumerate(language.decoder.layers):
        prefixes = [boundary.layer(index) for boundary in boundaries]
        hidden, _, _ = _maybe_checkpoint(recompute, _layer, layer, hidden, angles, segments, prefixes)
        hidden = hidden if visual is None else visual.behind(index, hidden)
    return hidden


def output_logits(language: Any, hidden: torch.Tensor) -> torch.Tensor:
    """Logits [M, V] of the last layer's hidden states [M, 1, H], through the final norm."""
    hidden = language.decoder.final_layernorm(hidden)
    tied = language.share_embeddings_and_output_weights
    weight = language.shared_embedding_or_output_weight() if tied else None
    logits, _ = language.output_layer(hidden, weight=weight)
    return logits[:, 0]  # type: ignore[no-any-return]


def _maybe_checkpoint(recompute: bool, function: Callable[..., Any], *arguments: Any) -> Any:
    if recompute and torch.is_grad_enabled():
        return checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False)
    return function(*arguments)


def _layer(
    layer: Any,
    hidden: torch.Tensor,
    angles: torch.Tensor,
    segments: Sequence[Segment],
    prefixes: Sequence[tuple[torch.Tensor, torch.Tensor]],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    context = AttentionContext(segments, prefixes)
    hidden, _ = layer(hidden, attention_mask=context, rotary_pos_emb=angles)
    assert context.key is not None
    assert context.value is not None
    return hidden, context.key, context.value


def _keys_and_values(layer: Any, hidden: torch.Tensor, angles: torch.Tensor) -> list[torch.Tensor]:
    """Post-RoPE keys and values of a layer without its queries, attention or MLP."""
    attention = layer.self_attention
    size = attention.hidden_size_per_attention_head
    linear = attention.linear_qkv
    # fused rows are [q .. q, k, v] per query group; the last two blocks of each are what a suffix needs
    blocks = attention.num_attention_heads_per_partition // attention.num_query_groups_per_partition + 2
    weight = linear.weight.view(-1, blocks, size, hidden.size(-1))
    bias = None if linear.bias is None else linear.bias.view(*weight.shape[:3])[:, -2:].flatten()
    normed = copy_to_tensor_model_parallel_region(layer.input_layernorm(hidden))
    mixed = F.linear(normed, weight[:, -2:].flatten(0, 2), bias)
    key, value = mixed.view(*hidden.shape[:2], -1, 2, size).unbind(3)
    if attention.k_layernorm is not None:
        key = attention.k_layernorm(key)
    key = apply_rotary_pos_emb(key, angles, config=attention.config)
    return [key, value.contiguous()]
