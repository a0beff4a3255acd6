"""Models whose mathematics the split passes do not reproduce are refused, not approximated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rollplex.api.families import FAMILIES
from rollplex.api.refusals import UnsupportedModelError
from rollplex.api.shapes import SHAPES, config_of_shape, shape_from_config


def config(**text: Any) -> dict[str, Any]:
    found = config_of_shape(SHAPES["qwen2.5-vl-3b"])
    found["text_config"] |= text
    return found


def config3(**text: Any) -> dict[str, Any]:
    found = config_of_shape(SHAPES["qwen3-vl-2b"])
    found["text_config"] |= text
    return found


def flat(**text: Any) -> dict[str, Any]:
    """As transformers 4 wrote it."""
    found = config(**text)
    return {**found.pop("text_config"), **found, "model_type": "qwen2_5_vl"}


@pytest.mark.parametrize("write", [config, flat, config3])
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"attention_dropout": 0.1}, r"attention_dropout is 0\.1; .* set it to 0\.0"),
        ({"use_sliding_window": True, "sliding_window": 4096}, r"use_sliding_window is true \(window 4096\); .* false"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; supported: 'silu'"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, "rope type is 'yarn'; supported: 'default'"),
    ],
)
def test_options_that_the_split_does_not_honour(write: Any, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedModelError, match=said):
        shape_from_config(write(**fields))


def test_a_window_that_is_not_used_is_no_window() -> None:
    assert shape_from_config(config(use_sliding_window=False, sliding_window=4096)).heads == 16


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model_type": "qwen2_vl"}, "model_type is 'qwen2_vl'; supported: 'qwen2_5_vl', 'qwen3_vl'$"),
        ({"model_type": "qwen3_vl_moe"}, "model_type is 'qwen3_vl_moe'; supported: 'qwen2_5_vl', 'qwen3_vl'$"),
        ({"model_type": "qwen3_5"}, "model_type is 'qwen3_5'; supported: 'qwen2_5_vl', 'qwen3_vl'$"),
        ({}, "model_type is None"),
        ({"quantization_config": {"bits": 4}}, "quantization_config is set; train from the unquantised folder"),
    ],
)
def test_other_models(fields: dict[str, Any], said: str) -> None:
    found = config()
    if not fields:
        del found["model_type"]
    with pytest.raises(UnsupportedModelError, match=said):
        shape_from_config(found | fields)


@pytest.mark.parametrize(
    ("text", "vision", "said"),
    [
        ({"attention_bias": True}, {}, "attention_bias is true; supported for this model_type: false"),
        (
            {"rope_parameters": {"rope_type": "default", "mrope_section": [24, 20, 20]}},
            {},
            r"mrope_interleaved is None; supported for this model_type: true \(transformers .*, vLLM would\)",
        ),
        ({}, {"hidden_act": "silu"}, "hidden_act of vision_config is 'silu'; supported: 'gelu_pytorch_tanh'"),
        (
            {"num_hidden_layers": 3},
            {},
            "deepstack_visual_indexes has 3 entries, but num_hidden_layers is 3: what is added .*; name fewer",
        ),
    ],
)
def test_variants_of_qwen3_vl(text: dict[str, Any], vision: dict[str, Any], said: str) -> None:
    found = config3(**text)
    found["vision_config"] |= vision
    with pytest.raises(UnsupportedModelError, match=said):
        shape_from_config(found)


def test_a_config_as_qwen3_vl_was_released_with() -> None:
    """transformers 4.57's names: rope_scaling, its theta beside it, the tower's model_type that of the whole."""
    text = {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "eos_token_id": 151645,
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "max_position_embeddings": 262144,
        "model_type": "qwen3_vl_text",
        "num_attention_heads": 16,
        "num_hidden_layers": 28,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-06,
        "rope_scaling": {"mrope_interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default"},
        "rope_theta": 5000000,
        "tie_word_embeddings": True,
        "vocab_size": 151936,
    }
    vision = {
        "deepstack_visual_indexes": [5, 11, 17],
        "depth": 24,
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_size": 1024,
        "in_channels": 3,
        "intermediate_size": 4096,
        "model_type": "qwen3_vl",
        "num_heads": 16,
        "num_position_embeddings": 2304,
        "out_hidden_size": 2048,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    }
    released = {
        "architectures": ["Qwen3VLForConditionalGeneration"],
        "image_token_id": 151655,
        "model_type": "qwen3_vl",
        "text_config": text,
        "tie_word_embeddings": True,
        "video_token_id": 151656,
        "vision_config": vision,
        "vision_end_token_id": 151653,
        "vision_start_token_id": 151652,
    }
    named = replace(SHAPES["qwen3-vl-2b"], eos_tokens=(151645,))
    assert shape_from_config(released, "qwen3-vl-2b") == named


def test_what_a_qwen3_vl_config_leaves_out_is_transformers_default() -> None:
    from transformers import Qwen3VLConfig

    config = Qwen3VLConfig().to_dict()
    text = dict(config["text_config"])
    read = shape_from_config(
        config | {"text_config": text | {"rope_parameters": {"mrope_interleaved": True}}, "vision_config": {}}
    )
    for key in FAMILIES["qwen3_vl"].vision.values():
        default = config["vision_config"][key.name]
        assert (tuple(default) if isinstance(default, list) else default) == key.default, key.name
    assert (read.head_dim, read.rope_theta) == (text["head_dim"], text["rope_parameters"]["rope_theta"])
