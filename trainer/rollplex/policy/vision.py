"""The Qwen2.5-VL vision tower and projector: the modules of transformers, as a well-kept library."""

from __future__ import annotations

import torch
from torch import nn
from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VisionTransformerPretrainedModel

from rollplex.api.shapes import ModelShape, config_of_shape
from rollplex.batch import Media


def build_vision(shape: ModelShape, dtype: torch.dtype) -> nn.Module:
    """The tower with uninitialised weights; ``merger`` is the projector, the rest is the vision part."""
    config = Qwen2_5_VLConfig(**config_of_shape(shape)).vision_config
    config._attn_implementation = "sdpa"
    default = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        tower: nn.Module = Qwen2_5_VisionTransformerPretrainedModel(config)
    finally:
        torch.set_default_dtype(default)
    return tower


def encode(visual: nn.Module, media: Media, device: torch.device) -> torch.Tensor:
    """Features [n, hidden] of one medium, in the order of its placeholder tokens."""
    weight = next(visual.parameters())
    grid = torch.tensor([media.grid], device=device)
    out = visual(media.patches.to(device=device, dtype=weight.dtype), grid_thw=grid)
    # transformers 5 wraps the projected features; the raw tower output has merge^2 times as many rows
    features: torch.Tensor = out.pooler_output if hasattr(out, "pooler_output") else out
    return features
