"""Vision tower and projector: the modules of transformers, as a well-kept library."""

from __future__ import annotations

import torch
from torch import nn
from transformers import AutoConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VisionTransformerPretrainedModel
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLVisionModel

from rollplex.api.families import QWEN2_5_VL, QWEN3_VL
from rollplex.api.shapes import ModelShape, config_of_shape
from rollplex.batch import Media

# by name, since AutoModel knows the older family's only from transformers 5.18 on
_TOWERS = {
    QWEN2_5_VL.model_type: Qwen2_5_VisionTransformerPretrainedModel,
    QWEN3_VL.model_type: Qwen3VLVisionModel,
}


def build_vision(shape: ModelShape, dtype: torch.dtype) -> nn.Module:
    """The tower with uninitialised weights; its mergers are the projector, the rest is the vision part."""
    config = AutoConfig.for_model(**config_of_shape(shape)).vision_config
    default = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        config._attn_implementation = "sdpa"
        tower: nn.Module = _TOWERS[shape.model_type](config)
    finally:
        torch.set_default_dtype(default)
    return tower


def encode(visual: nn.Module, media: Media, device: torch.device) -> list[torch.Tensor]:
    """Features of one medium, each [n, hidden] in the order of its placeholder tokens: its own, then deepstack's."""
    weight = next(visual.parameters())
    grid = torch.tensor([media.grid], device=device)
    out = visual(media.patches.to(device=device, dtype=weight.dtype), grid_thw=grid)
    # transformers 5 wraps the projected features; the raw tower output has merge^2 times as many rows
    features: torch.Tensor = out.pooler_output if hasattr(out, "pooler_output") else out
    return [features, *(getattr(out, "deepstack_features", None) or ())]
