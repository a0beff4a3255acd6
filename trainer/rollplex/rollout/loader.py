"""vLLM's model, built without memory of its own and filled with views of the trainer's weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from vllm import ModelRegistry
from vllm.config import ModelConfig, VllmConfig
from vllm.model_executor.model_loader import register_model_loader
from vllm.model_executor.model_loader.base_loader import BaseModelLoader
from vllm.model_executor.model_loader.utils import initialize_model, process_weights_after_loading
from vllm.model_executor.models.qwen2_5_vl import Qwen2_5_VLForConditionalGeneration
from vllm.model_executor.models.qwen3_vl import Qwen3VLForConditionalGeneration
from vllm.multimodal.inputs import MultiModalFeatureSpec
from vllm.utils.torch_utils import set_default_torch_dtype

from rollplex.api.families import QWEN2_5_VL, QWEN3_VL
from rollplex.batch import Media
from rollplex.positions import rope_positions
from rollplex.rollout.compat import keep_embeddings_tied
from rollplex.rollout.inputs import runs_of
from rollplex.weights.share import install
from rollplex.weights.transfer import offered

LOAD_FORMAT = "rollplex"


class SharedPositions:
    """The trainer's position rule for a model of vLLM's: some versions of vLLM leave the video's timing out."""

    config: Any  # vLLM's models have it

    # patches arrive normalised; newer versions would normalise them once more on the device
    supports_mm_device_do_normalize = False

    def get_mrope_input_positions(
        self, input_tokens: list[int], mm_features: list[MultiModalFeatureSpec]
    ) -> tuple[torch.Tensor, int]:
        """Positions [3, P] of a prompt, and the offset that turns a later token's index into its position."""
        vision = self.config.vision_config
        features = sorted(mm_features, key=lambda feature: feature.mm_position.offset)
        positions = rope_positions(
            len(input_tokens),
            [_medium(feature) for feature in features],
            [runs_of(feature.mm_position) for feature in features],
            merge=vision.spatial_merge_size,
            tokens_per_second=int(getattr(vision, "tokens_per_second", 0)),  # 0: time is text
        )
        return positions, int(positions.max()) + 1 - len(input_tokens)


class SharedQwen2_5_VL(SharedPositions, Qwen2_5_VLForConditionalGeneration):  # type: ignore[misc]  # noqa: N801 (vLLM's name)
    """vLLM's Qwen2.5-VL."""


class SharedQwen3VL(SharedPositions, Qwen3VLForConditionalGeneration):  # type: ignore[misc]
    """vLLM's Qwen3-VL."""


def _medium(feature: MultiModalFeatureSpec) -> Media:
    """What the rule needs of a medium. Its pixels may be gone: vLLM drops those of a prefix that it holds in cache."""
    data, unread = feature.data, torch.empty(0)
    if feature.modality == "image":
        t, h, w = data["image_grid_thw"].data.tolist()
        return Media("image", unread, (t, h, w))
    t, h, w = data["video_grid_thw"].data.tolist()
    return Media("video", unread, (t, h, w), data["second_per_grid_ts"].data.item())


class SharedWeightsLoader(BaseModelLoader):  # type: ignore[misc]
    """Loads by reference: reads no file, randomises nothing, and leaves the module's buffers as they were built."""

    def download_model(self, model_config: ModelConfig) -> None:
        """Nothing to download."""

    def load_weights(self, model: nn.Module, model_config: ModelConfig) -> None:
        """Install the views behind the handle in the load configuration."""
        install(model, offered(self.load_config.model_loader_extra_config["handle"]))

    def load_model(self, vllm_config: VllmConfig, model_config: ModelConfig, prefix: str = "") -> nn.Module:
        """Build, post-process, then install: before memory profiling and before any graph is captured.

        Post-processing sees parameters on the meta device. On CPU vLLM would otherwise pack linear weights into its own
        format and drop the originals; for a layer without memory it falls back to ``torch.nn.functional.linear``,
        which reads whatever ``weight`` holds at the time of the call.
        """
        device = torch.device(vllm_config.device_config.device)
        keep_embeddings_tied(model_config)
        with set_default_torch_dtype(model_config.dtype), device, _parameters_without_memory():
            model: nn.Module = initialize_model(vllm_config=vllm_config, model_config=model_config, prefix=prefix)
        process_weights_after_loading(model, model_config, device)
        self.load_weights(model, model_config)
        model.eval()
        return model


@contextmanager
def _parameters_without_memory() -> Iterator[None]:
    """Move every parameter to the meta device as it is registered; buffers keep their contents."""

    def to_meta(module: nn.Module, name: str, parameter: nn.Parameter | None) -> nn.Parameter | None:
        if parameter is None or parameter.is_meta:  # registered again under a second name: stay one object
            return None
        return nn.Parameter(torch.empty(parameter.shape, dtype=parameter.dtype, device="meta"), requires_grad=False)

    handle = register_module_parameter_registration_hook(to_meta)  # type: ignore[arg-type]
    try:
        yield
    finally:
        handle.remove()


def register() -> None:
    """Tell vLLM of the loader and the model classes; registering a class also spares an inspection subprocess."""
    register_model_loader(LOAD_FORMAT)(SharedWeightsLoader)
    ModelRegistry.register_model(QWEN2_5_VL.architecture, SharedQwen2_5_VL)
    ModelRegistry.register_model(QWEN3_VL.architecture, SharedQwen3VL)
