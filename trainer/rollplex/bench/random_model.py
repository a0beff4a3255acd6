"""``--random-weights SHAPE``: a model folder without weights, and weights drawn in place.

Speed and memory do not depend on the weights' values. The folder holds a config, tokenizer and processor; nothing of
the model's size is written to disk.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from rollplex.api.errors import JobError
from rollplex.api.shapes import SHAPES, ModelShape, config_of_shape
from rollplex.data.tiny_model import save_processor, with_tokens
from rollplex.policy.policy import Policy


@contextmanager
def random_folder(name: str) -> Iterator[tuple[Path, ModelShape]]:
    """A temporary Hugging Face folder of a shape of :data:`rollplex.api.shapes.SHAPES`, without weights.

    The tokenizer is the tiny model's: its special tokens take the places that the config names.

    Raises:
        JobError: no such shape.
    """
    if name not in SHAPES:
        raise JobError.at("--random-weights", f"{name!r} is no shape; choose from {', '.join(SHAPES)}")
    with TemporaryDirectory(prefix="rollplex-") as folder:
        path = Path(folder)
        shape = with_tokens(SHAPES[name], save_processor(path, SHAPES[name].model_type))
        (path / "config.json").write_text(json.dumps(config_of_shape(shape)))
        yield path, shape


@torch.no_grad()
def random_policy(shape: ModelShape, dtype: torch.dtype, recompute: bool, seed: int, device: str = "cpu") -> Policy:
    """Matrices normal with std 0.02 (Qwen's initializer_range), norms 1, biases 0."""
    policy = Policy(shape, dtype, recompute, device)
    generator = torch.Generator(device=policy.device).manual_seed(seed)
    for name, parameter in policy.named_parameters():
        if parameter.dim() > 1:
            parameter.normal_(std=0.02, generator=generator)
        else:
            parameter.fill_(0.0 if name.endswith("bias") else 1.0)
    return policy
