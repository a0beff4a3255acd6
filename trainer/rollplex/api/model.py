"""``spec.model``: which weights, what they are compared with, what stays as it is."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rollplex.api.base import FilePath, Items, Section
from rollplex.api.shapes import SHAPES


class ModelSpec(Section):
    """The policy's weights and the reference it is held to."""

    path: Annotated[
        FilePath,
        Field(
            description="Hugging Face folder of a Qwen2.5-VL or Qwen3-VL: config, safetensors, tokenizer, processor.",
            examples=["/models/Qwen2.5-VL-7B-Instruct"],
        ),
    ]
    shape: str | None = Field(
        None,
        description=(
            f"Heads and sizes by name ({', '.join(SHAPES)}), for places that cannot see the folder: a laptop, "
            "admission."
        ),
        min_length=1,
        max_length=63,
    )
    reference: FilePath = Field(
        "initial",
        description=(
            "What the KL is taken against: initial (the weights the run began with) or a folder (opd: the teacher). "
            "Not loaded where algorithm.kl.coefficient is 0."
        ),
    )
    freeze: Items[Literal["vision", "projector", "language"]] = Field(
        (), description="Parts whose weights do not change.", max_length=3
    )
