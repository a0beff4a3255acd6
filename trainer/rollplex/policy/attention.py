"""Core attention over a shared prefix, and what a layer must be told to run it.

Shapes: T = rows of the pass, h = heads, k = KV heads, d = head size, P = tokens of a prefix. Megatron-Core hands the
core attention post-RoPE local heads in [T, 1, h, d]; a pass is always one packed row of tokens, so the batch size is 1.

Megatron's layers pass their ``attention_mask`` argument through untouched, so the :class:`AttentionContext` travels in
it. It is made anew for every call of a layer: recomputing a layer makes a new one and can neither lose nor double KV.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from megatron.core.transformer.module import MegatronModule


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows ``start:stop`` of a pass, which see their prefix (if any) and each other as ``mask`` allows.

    ``mask`` is [stop - start, P + stop - start] bool, True where a row may look; None is plain causal without prefix.
    """

    start: int
    stop: int
    prefix: int | None = None  # index into AttentionContext.prefixes
    mask: torch.Tensor | None = None


@dataclass(slots=True)
class AttentionContext:
    """What one call of one layer reads and leaves behind."""

    segments: Sequence[Segment]
    prefixes: Sequence[tuple[torch.Tensor, torch.Tensor]] = ()  # this layer's boundary KV, each [P, 1, k, d]
    key: torch.Tensor | None = None  # [T, 1, k, d], post-RoPE, set by the call
    value: torch.Tensor | None = None


class BoundaryAttention(MegatronModule):  # type: ignore[misc]
    """Megatron-Core core attention that reads boundary KV and shows its own."""

    def __init__(
        self,
        config: Any,
        layer_number: int,
        attn_mask_type: Any,
        attention_type: str,
        attention_dropout: float | None = None,
        softmax_scale: float | None = None,
        cp_comm_type: str | None = None,
        pg_collection: Any = None,
    ) -> None:
        super().__init__(config=config)
        if config.attention_dropout or attention_dropout:
            raise ValueError("attention dropout must be 0: a prefix and its suffixes would draw different masks")
        self.scale = softmax_scale

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: AttentionContext,
        attn_mask_type: Any = None,
        attention_bias: torch.Tensor | None = None,
        packed_seq_params: Any = None,
    ) -> torch.Tensor:
        """Attend segment by segment; query [T, 1, h, d], key and value [T, 1, k, d] -> [T, 1, h * d]."""
        context = attention_mask
        context.key, context.value = key, value
        parts = [self._segment(segment, context, query, key, value) for segment in context.segments]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _segment(
        self, segment: Segment, context: AttentionContext, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        rows = slice(segment.start, segment.stop)
        q, k, v = query[rows], key[rows], value[rows]
        if segment.prefix is not None:
            prefix_key, prefix_value = context.prefixes[segment.prefix]
            k, v = torch.cat([prefix_key, k]), torch.cat([prefix_value, v])
        out = F.scaled_dot_product_attention(
            q.permute(1, 2, 0, 3),
            k.permute(1, 2, 0, 3),
            v.permute(1, 2, 0, 3),
            attn_mask=segment.mask,
            is_causal=segment.mask is None,
            scale=self.scale,
            enable_gqa=q.size(2) != k.size(2),
        )
        return out.permute(2, 0, 1, 3).reshape(q.size(0), 1, -1)


def causal_after_prefix(prefix: int, lengths: Sequence[int], device: torch.device) -> torch.Tensor:
    """Mask [sum(lengths), prefix + sum(lengths)]: every row sees the prefix and its own response up to itself."""
    own = torch.block_diag(*(torch.ones(n, n, dtype=torch.bool).tril() for n in lengths)).bool()
    return torch.cat([torch.ones(own.size(0), prefix, dtype=torch.bool), own], dim=1).to(device)
