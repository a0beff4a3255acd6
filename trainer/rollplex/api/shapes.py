"""What the planner, the data reader and the engines must know of a model, in one small table (no torch).

A shape is read from a Hugging Face ``config.json`` or taken from :data:`SHAPES` by name where no folder can be seen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


class UnsupportedModelError(ValueError):
    """A model whose mathematics the split passes would not reproduce."""


@dataclass(frozen=True, slots=True)
class VisionShape:
    """The vision tower and its projector (Qwen2.5-VL)."""

    depth: int
    hidden: int
    heads: int
    intermediate: int
    full_attention_blocks: tuple[int, ...]
    patch: int = 14
    temporal_patch: int = 2
    merge: int = 2  # side of the square of patches that becomes one language token
    window: int = 112  # pixels
    tokens_per_second: int = 2  # temporal positions a second of video advances
    channels: int = 3

    @property
    def patch_dim(self) -> int:
        """Values in one patch row: channels x temporal_patch x patch x patch."""
        return self.channels * self.temporal_patch * self.patch**2


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Heads and sizes of one vision-language model; token ids where the vocabulary fixes them."""

    name: str
    hidden: int
    layers: int
    ffn: int
    heads: int
    kv_heads: int
    vocabulary: int
    vision: VisionShape
    tied_embeddings: bool = False
    norm_epsilon: float = 1e-6
    rope_theta: float = 1_000_000.0
    mrope_section: tuple[int, int, int] = (16, 24, 24)
    max_positions: int = 128_000
    image_token: int = 151655
    video_token: int = 151656
    vision_start_token: int = 151652
    vision_end_token: int = 151653
    eos_tokens: tuple[int, ...] = (151645, 151643)

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    @property
    def media_tokens(self) -> tuple[int, int]:
        """The two placeholder ids that stand for vision features in a prompt."""
        return (self.image_token, self.video_token)


def _qwen(
    name: str, hidden: int, layers: int, ffn: int, heads: int, kv: int, vocabulary: int, tied: bool
) -> ModelShape:
    vision = VisionShape(
        depth=32,
        hidden=1280,
        heads=16,
        intermediate=3456 if name.endswith("32b") else 3420,
        full_attention_blocks=(7, 15, 23, 31),
    )
    return ModelShape(
        name=name,
        hidden=hidden,
        layers=layers,
        ffn=ffn,
        heads=heads,
        kv_heads=kv,
        vocabulary=vocabulary,
        vision=vision,
        tied_embeddings=tied,
    )


# Not a model of Qwen's: small enough for tests and CPU benchmarks.
_TINY = ModelShape(
    name="qwen2.5-vl-tiny",
    hidden=128,
    layers=2,
    ffn=256,
    heads=4,
    kv_heads=2,
    vocabulary=512,
    vision=VisionShape(depth=2, hidden=64, heads=2, intermediate=128, full_attention_blocks=(1,)),
    mrope_section=(4, 6, 6),
    max_positions=2048,
)

SHAPES: dict[str, ModelShape] = {
    shape.name: shape
    for shape in (
        _TINY,
        _qwen("qwen2.5-vl-3b", 2048, 36, 11008, 16, 2, 151936, True),
        _qwen("qwen2.5-vl-7b", 3584, 28, 18944, 28, 4, 152064, False),
        _qwen("qwen2.5-vl-32b", 5120, 64, 27648, 40, 8, 152064, False),
        _qwen("qwen2.5-vl-72b", 8192, 80, 29568, 64, 8, 152064, False),
    )
}


def shape_from_config(config: Mapping[str, Any], name: str = "model") -> ModelShape:
    """Read a Hugging Face Qwen2.5-VL config.

    Args:
        config: the parsed ``config.json``; text fields are under ``text_config`` (transformers 5) or flat (4).

    Raises:
        UnsupportedModelError: another model type, or an option (attention dropout, sliding window, quantised weights,
            another rope) that the split passes do not honour; the message names the field, its value and the way out.
    """
    kind = config.get("model_type")
    if kind != "qwen2_5_vl":
        raise UnsupportedModelError(f"config.json: model_type is {kind!r}; supported: 'qwen2_5_vl'")
    text: Mapping[str, Any] = config.get("text_config") or config
    tower: Mapping[str, Any] = config.get("vision_config") or {}
    rope: Mapping[str, Any] = text.get("rope_parameters") or text.get("rope_scaling") or {}
    _refuse_what_the_split_ignores(config, text, rope)
    eos = text.get("eos_token_id", config.get("eos_token_id"))
    return ModelShape(
        name=name,
        hidden=text["hidden_size"],
        layers=text["num_hidden_layers"],
        ffn=text["intermediate_size"],
        heads=text["num_attention_heads"],
        kv_heads=text["num_key_value_heads"],
        vocabulary=text["vocab_size"],
        vision=VisionShape(
            depth=tower.get("depth", 32),
            hidden=tower.get("hidden_size", 1280),
            heads=tower.get("num_heads", 16),
            intermediate=tower.get("intermediate_size", 3420),
            full_attention_blocks=tuple(tower.get("fullatt_block_indexes", (7, 15, 23, 31))),
            patch=tower.get("patch_size", tower.get("spatial_patch_size", 14)),
            temporal_patch=tower.get("temporal_patch_size", 2),
            merge=tower.get("spatial_merge_size", 2),
            window=tower.get("window_size", 112),
            tokens_per_second=int(tower.get("tokens_per_second", 2)),
            channels=tower.get("in_channels", tower.get("in_chans", 3)),
        ),
        tied_embeddings=bool(config.get("tie_word_embeddings", False)),
        norm_epsilon=text.get("rms_norm_eps", 1e-6),
        rope_theta=float(rope.get("rope_theta", text.get("rope_theta", 1_000_000.0))),
        mrope_section=tuple(rope.get("mrope_section", (16, 24, 24))),
        max_positions=text.get("max_position_embeddings", 128_000),
        image_token=config.get("image_token_id", 151655),
        video_token=config.get("video_token_id", 151656),
        vision_start_token=config.get("vision_start_token_id", 151652),
        vision_end_token=config.get("vision_end_token_id", 151653),
        eos_tokens=tuple(eos) if isinstance(eos, list) else (151645, 151643) if eos is None else (eos,),
    )


def _refuse_what_the_split_ignores(config: Mapping[str, Any], text: Mapping[str, Any], rope: Mapping[str, Any]) -> None:
    dropout = text.get("attention_dropout", 0.0)
    if dropout:
        raise UnsupportedModelError(
            f"config.json: attention_dropout is {dropout}; "
            "a prefix and its suffixes would draw different masks: set it to 0.0"
        )
    if text.get("use_sliding_window"):
        raise UnsupportedModelError(
            f"config.json: use_sliding_window is true (window {text.get('sliding_window')}); "
            "suffixes read the whole prefix: set it to false"
        )
    activation = text.get("hidden_act", "silu")
    if activation != "silu":
        raise UnsupportedModelError(f"config.json: hidden_act is {activation!r}; supported: 'silu'")
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", "mrope"):
        raise UnsupportedModelError(f"config.json: rope type is {kind!r}; supported: 'default' with mrope_section")
    if "quantization_config" in config:
        raise UnsupportedModelError("config.json: quantization_config is set; train from the unquantised folder")


def shape_from_folder(folder: str | Path) -> ModelShape:
    """Read the shape of a Hugging Face model folder; raises ValueError naming what is missing or unsupported."""
    path = Path(folder) / "config.json"
    try:
        config = json.loads(path.read_text())
    except FileNotFoundError:
        raise ValueError(f"{path} is missing; model.path must be a Hugging Face folder with config.json") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    return shape_from_config(config, name=Path(folder).name)


def config_of_shape(shape: ModelShape) -> dict[str, Any]:
    """The Hugging Face config.json of a shape (random-weight benchmarks, tests)."""
    vision = asdict(shape.vision)
    return {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "model_type": "qwen2_5_vl",
        "tie_word_embeddings": shape.tied_embeddings,
        "image_token_id": shape.image_token,
        "video_token_id": shape.video_token,
        "vision_start_token_id": shape.vision_start_token,
        "vision_end_token_id": shape.vision_end_token,
        "text_config": {
            "model_type": "qwen2_5_vl_text",
            "vocab_size": shape.vocabulary,
            "hidden_size": shape.hidden,
            "intermediate_size": shape.ffn,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads,
            "max_position_embeddings": shape.max_positions,
            "rms_norm_eps": shape.norm_epsilon,
            "hidden_act": "silu",
            "attention_dropout": 0.0,
            "use_sliding_window": False,
            "tie_word_embeddings": shape.tied_embeddings,
            "eos_token_id": list(shape.eos_tokens),
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": shape.rope_theta,
                "mrope_section": list(shape.mrope_section),
            },
        },
        "vision_config": {
            "model_type": "qwen2_5_vl_vision",
            "depth": vision["depth"],
            "hidden_size": vision["hidden"],
            "num_heads": vision["heads"],
            "intermediate_size": vision["intermediate"],
            "out_hidden_size": shape.hidden,
            "patch_size": vision["patch"],
            "spatial_merge_size": vision["merge"],
            "temporal_patch_size": vision["temporal_patch"],
            "window_size": vision["window"],
            "fullatt_block_indexes": list(vision["full_attention_blocks"]),
            "tokens_per_second": vision["tokens_per_second"],
            "in_channels": vision["channels"],
            "hidden_act": "silu",
        },
    }
