"""Counts of parameters against what is published, and bytes of a token against what was measured."""

import pytest

from rollplex.api.shapes import SHAPES
from rollplex.planner.size import size_of

# Of the released folders on Hugging Face (safetensors).
PUBLISHED = {
    "qwen2.5-vl-3b": 3_754_622_976,
    "qwen2.5-vl-7b": 8_292_166_656,
    "qwen2.5-vl-32b": 33_452_718_336,
    "qwen2.5-vl-72b": 73_410_777_344,
    "qwen3-vl-2b": 2_127_532_032,
    "qwen3-vl-4b": 4_437_815_808,
    "qwen3-vl-8b": 8_767_123_696,
    "qwen3-vl-32b": 33_357_390_064,
}


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED.items())
def test_parameters_are_those_of_the_released_models(name: str, parameters: int) -> None:
    size = size_of(SHAPES[name])
    assert size.language + size.vision == parameters


def test_saved_activations_of_a_7b_token_are_near_the_measured_ones() -> None:
    size = size_of(SHAPES["qwen2.5-vl-7b"])
    assert 2 * (size.saved_whole + size.saved_cut) == pytest.approx(4.4e6, rel=0.05)
