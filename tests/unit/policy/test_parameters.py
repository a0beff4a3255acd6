"""The table of parameters that layouts and plans count with, against the language model itself."""

from __future__ import annotations

import pytest
import torch

from rollplex.api.shapes import SHAPES
from rollplex.policy.language import build_language
from rollplex.weights.parameters import language_parameters


@pytest.mark.parametrize("name", ["qwen2.5-vl-tiny", "qwen3-vl-tiny"])
def test_the_table_counts_what_the_language_model_has(name: str) -> None:
    shape = SHAPES[name]
    counted = sum(parameter.elements for parameter in language_parameters(shape))
    assert counted == sum(parameter.numel() for parameter in build_language(shape, torch.float32).parameters())
