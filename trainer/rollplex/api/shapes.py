"""What the planner, the data reader and the engines must know of a model, in one small table (no torch).

A shape is read from a Hugging Face ``config.json`` or taken from :data:`SHAPES` by name where no folder can be seen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollplex.api.families import FAMILIES, QWEN2_5_VL, QWEN3_VL, Family
from rollplex.api.refusals import family_of, refuse_variants, refuse_what_the_split_ignores


@dataclass(frozen=True, slots=True)
class VisionShape:
    """The vision tower and its projector; what a family does not have keeps its default."""

    depth: int
    hidden: int
    heads: int
    intermediate: int
    full_attention_blocks: tuple[int, ...] = ()  # the other blocks attend within windows
    deepstack_blocks: tuple[int, ...] = ()  # whose outputs are projected too, and added behind the first decoder layers
    position_grid: int = 0  # learnt positions: a square of so many, resampled to each picture's grid
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
    model_type: str = QWEN2_5_VL.model_type
    head_size: int | None = None  # None: hidden / heads
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
    def family(self) -> Family:
        """What sets the model apart from those of other families."""
        return FAMILIES[self.model_type]

    @property
    def head_dim(self) -> int:
        return self.head_size or self.hidden // self.heads

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
        intermediate=3456 if name.endswith(("32b", "72b")) else 3420,
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


def _qwen3(name: str, hidden: int, layers: int, ffn: int, heads: int, tied: bool, *, large_tower: bool) -> ModelShape:
    depth, width, inner, taken = (27, 1152, 4304, (8, 16, 24)) if large_tower else (24, 1024, 4096, (5, 11, 17))
    vision = VisionShape(depth, width, 16, inner, deepstack_blocks=taken, position_grid=2304, patch=16)
    return ModelShape(
        name=name,
        hidden=hidden,
        layers=layers,
        ffn=ffn,
        heads=heads,
        kv_heads=8,
        vocabulary=151936,
        vision=vision,
        model_type=QWEN3_VL.model_type,
        head_size=128,
        tied_embeddings=tied,
        rope_theta=5_000_000.0,
        mrope_section=(24, 20, 20),
        max_positions=262_144,
    )


# Not models of Qwen's: small enough for tests and CPU benchmarks.
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
_TINY3 = ModelShape(
    name="qwen3-vl-tiny",
    hidden=128,
    layers=3,
    ffn=256,
    heads=4,
    kv_heads=2,
    vocabulary=512,
    vision=VisionShape(3, 64, 2, 128, deepstack_blocks=(0, 1), position_grid=36, patch=16),
    model_type=QWEN3_VL.model_type,
    head_size=32,
    rope_theta=5_000_000.0,
    mrope_section=(6, 5, 5),
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
        _TINY3,
        _qwen3("qwen3-vl-2b", 2048, 28, 6144, 16, True, large_tower=False),
        _qwen3("qwen3-vl-4b", 2560, 36, 9728, 32, True, large_tower=False),
        _qwen3("qwen3-vl-8b", 4096, 36, 12288, 32, False, large_tower=True),
        _qwen3("qwen3-vl-32b", 5120, 64, 25600, 64, False, large_tower=True),
    )
}


def shape_from_config(config: Mapping[str, Any], name: str = "model") -> ModelShape:
    """Read a Hugging Face config of a family of :data:`rollplex.api.families.FAMILIES`.

    Args:
        config: the parsed ``config.json``; text fields are under ``text_config`` (transformers 5) or flat (4).

    Raises:
        UnsupportedModelError: another model type, or an option (attention dropout, sliding window, quantised weights,
            another rope) that the split passes do not honour; the message names the field, its value and the way out.
    """
    family = family_of(config)
    text: Mapping[str, Any] = config.get("text_config") or config
    tower: Mapping[str, Any] = config.get("vision_config") or {}
    rope: Mapping[str, Any] = text.get("rope_parameters") or text.get("rope_scaling") or {}
    refuse_what_the_split_ignores(config, text, rope)
    refuse_variants(family, text, tower, rope)
    eos = text.get("eos_token_id", config.get("eos_token_id"))
    return ModelShape(
        name=name,
        hidden=text["hidden_size"],
        layers=text["num_hidden_layers"],
        ffn=text["intermediate_size"],
        heads=text["num_attention_heads"],
        kv_heads=text["num_key_value_heads"],
        vocabulary=text["vocab_size"],
        vision=_vision(family, tower),
        model_type=family.model_type,
        head_size=None if family.head_dim is None else text.get("head_dim", family.head_dim),
        tied_embeddings=bool(config.get("tie_word_embeddings", False)),
        norm_epsilon=text.get("rms_norm_eps", 1e-6),
        rope_theta=float(rope.get("rope_theta", text.get("rope_theta", family.rope_theta))),
        mrope_section=tuple(rope.get("mrope_section", family.mrope_section)),
        max_positions=text.get("max_position_embeddings", 128_000),
        image_token=config.get("image_token_id", 151655),
        video_token=config.get("video_token_id", 151656),
        vision_start_token=config.get("vision_start_token_id", 151652),
        vision_end_token=config.get("vision_end_token_id", 151653),
        eos_tokens=tuple(eos) if isinstance(eos, list) else (151645, 151643) if eos is None else (eos,),
    )


def _vision(family: Family, tower: Mapping[str, Any]) -> VisionShape:
    fields: dict[str, Any] = {
        field: tower.get(key.name, tower.get(key.older or key.name, key.default))
        for field, key in family.vision.items()
    }
    fields = {field: tuple(value) if isinstance(value, list) else value for field, value in fields.items()}
    return VisionShape(**fields)


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
    family = shape.family
    config: dict[str, Any] = {
        "architectures": [family.architecture],
        "model_type": family.model_type,
        "tie_word_embeddings": shape.tied_embeddings,
        "image_token_id": shape.image_token,
        "video_token_id": shape.video_token,
        "vision_start_token_id": shape.vision_start_token,
        "vision_end_token_id": shape.vision_end_token,
        "text_config": {
            "model_type": f"{family.model_type}_text",
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
            "model_type": f"{family.model_type}_vision",
            "out_hidden_size": shape.hidden,
            "hidden_act": family.vision_activation,
        },
    }
    if family.head_dim is not None:
        config["text_config"]["head_dim"] = shape.head_dim
    if family.interleaved_rope:
        config["text_config"]["rope_parameters"]["mrope_interleaved"] = True
    for field, key in family.vision.items():
        value = getattr(shape.vision, field)
        config["vision_config"][key.name] = list(value) if isinstance(value, tuple) else value
    return config
