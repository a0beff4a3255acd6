"""Models whose mathematics the split passes do not reproduce are refused, not approximated."""

from __future__ import annotations

from typing import Any

import pytest

from rollplex.api.shapes import SHAPES, UnsupportedModelError, config_of_shape, shape_from_config


def config(**text: Any) -> dict[str, Any]:
    found = config_of_shape(SHAPES["qwen2.5-vl-3b"])
    found["text_config"] |= text
    return found


def flat(**text: Any) -> dict[str, Any]:
    """As transformers 4 wrote it."""
    found = config(**text)
    return {**found.pop("text_config"), **found, "model_type": "qwen2_5_vl"}


@pytest.mark.parametrize("write", [config, flat])
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
        ({"model_type": "qwen2_vl"}, "model_type is 'qwen2_vl'; supported: 'qwen2_5_vl'"),
        ({"quantization_config": {"bits": 4}}, "quantization_config is set; train from the unquantised folder"),
    ],
)
def test_other_models(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedModelError, match=said):
        shape_from_config(config() | fields)


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_is_read_back_from_its_config(name: str) -> None:
    assert shape_from_config(config_of_shape(SHAPES[name]), name) == SHAPES[name]
