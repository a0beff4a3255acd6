"""The supported model families: all that differs between them, as one table (no torch).

Everything else is common: a pre-norm decoder with grouped queries and multimodal rotary positions behind a vision tower
whose merger makes one token of a square of patches. A model type that is not here is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Key:
    """Where a field of :class:`rollplex.api.shapes.VisionShape` stands in ``vision_config``."""

    name: str
    default: Any
    older: str | None = None  # its name in configs of earlier releases


@dataclass(frozen=True, slots=True)
class Family:
    """One model type of Hugging Face's ``config.json``.

    ``vision`` maps the fields of a vision tower's shape to their keys.
    """

    model_type: str
    architecture: str
    qkv_bias: bool
    qk_norm: bool  # RMS norm over each head's query and key, before the rotation
    interleaved_rope: bool  # frequencies dealt out to time, height, width in turn, not in three sections
    # A video's temporal rows stand apart, each behind its time as text and between markers of its own. Otherwise a
    # video is one run of tokens and its time is in the positions.
    time_as_text: bool
    head_dim: int | None  # None: hidden size / heads, and no key of its own
    rope_theta: float
    mrope_section: tuple[int, int, int]
    vision_activation: str
    vision: Mapping[str, Key]


QWEN2_5_VL = Family(
    model_type="qwen2_5_vl",
    architecture="Qwen2_5_VLForConditionalGeneration",
    qkv_bias=True,
    qk_norm=False,
    interleaved_rope=False,
    time_as_text=False,
    head_dim=None,
    rope_theta=1_000_000.0,
    mrope_section=(16, 24, 24),
    vision_activation="silu",
    vision={
        "depth": Key("depth", 32),
        "hidden": Key("hidden_size", 1280),
        "heads": Key("num_heads", 16),
        "intermediate": Key("intermediate_size", 3420),
        "full_attention_blocks": Key("fullatt_block_indexes", (7, 15, 23, 31)),
        "patch": Key("patch_size", 14, "spatial_patch_size"),
        "temporal_patch": Key("temporal_patch_size", 2),
        "merge": Key("spatial_merge_size", 2),
        "window": Key("window_size", 112),
        "tokens_per_second": Key("tokens_per_second", 2),
        "channels": Key("in_channels", 3, "in_chans"),
    },
)

QWEN3_VL = Family(
    model_type="qwen3_vl",
    architecture="Qwen3VLForConditionalGeneration",
    qkv_bias=False,
    qk_norm=True,
    interleaved_rope=True,
    time_as_text=True,
    head_dim=128,
    rope_theta=500_000.0,
    mrope_section=(24, 20, 20),
    vision_activation="gelu_pytorch_tanh",
    vision={
        "depth": Key("depth", 27),
        "hidden": Key("hidden_size", 1152),
        "heads": Key("num_heads", 16),
        "intermediate": Key("intermediate_size", 4304),
        "deepstack_blocks": Key("deepstack_visual_indexes", (8, 16, 24)),
        "position_grid": Key("num_position_embeddings", 2304),
        "patch": Key("patch_size", 16),
        "temporal_patch": Key("temporal_patch_size", 2),
        "merge": Key("spatial_merge_size", 2),
        "channels": Key("in_channels", 3),
    },
)

FAMILIES: dict[str, Family] = {family.model_type: family for family in (QWEN2_5_VL, QWEN3_VL)}
