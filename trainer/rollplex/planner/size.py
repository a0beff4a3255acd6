"""How much of everything there is in a model: parameters, and bytes a token leaves behind (pure)."""

from __future__ import annotations

from dataclasses import dataclass

from rollplex.api.families import QWEN3_VL
from rollplex.api.shapes import ModelShape
from rollplex.weights.parameters import language_parameters


@dataclass(frozen=True)
class ModelSize:
    """Counts of parameters, and of values that one token leaves; multiply by the bytes of an item."""

    layer_matrices: int  # weights that every token of a pass meets, all layers
    head: int  # the output matrix, met by tokens that are scored or sampled
    language: int  # all parameters of the language model
    vision: int
    kv_values: int  # keys and values of one token, all layers
    saved_whole: int  # per token: saved for the backward by every rank of a train TP group
    saved_cut: int  # per token: saved once over the ranks of the group
    layer_input: int  # per token: what remains of it if layers are recomputed
    patch_saved: int  # per vision patch


def size_of(shape: ModelShape) -> ModelSize:
    """Sizes of a shape.

    Saved for a layer's backward, with flash attention and a fused activation: three times hidden that tensor
    parallelism does not cut (the inputs of both norms and the residual), and queries, keys, values, attention's output
    and three times the FFN that it does. For a 7B shape that is 4.2 MB a token in bf16; 4.4 were measured.
    """
    hidden, layers = shape.hidden, shape.layers
    width = shape.heads * shape.head_dim
    kv = shape.kv_heads * shape.head_dim
    matrices = layers * (hidden * (width + 2 * kv) + width * hidden + 3 * hidden * shape.ffn)
    return ModelSize(
        layer_matrices=matrices,
        head=hidden * shape.vocabulary,
        language=sum(parameter.elements for parameter in language_parameters(shape)),
        vision=vision_parameters(shape),
        kv_values=2 * layers * kv,
        saved_whole=layers * 3 * hidden,
        saved_cut=layers * (2 * width + 2 * kv + 3 * shape.ffn),
        layer_input=layers * hidden,
        patch_saved=shape.vision.depth * (6 * shape.vision.hidden + 3 * shape.vision.intermediate),
    )


def vision_parameters(shape: ModelShape) -> int:
    """Of the tower and its projectors, with their biases and norms."""
    tower, out = shape.vision, shape.hidden
    hidden, inner, merged = tower.hidden, tower.intermediate, tower.hidden * tower.merge**2
    projector = merged * merged + merged + merged * out + out
    attention = 4 * hidden * hidden + 4 * hidden
    patches = tower.patch_dim * hidden
    if shape.family is QWEN3_VL:  # layer norms and patches with biases, two matrices in an FFN, learnt positions
        block = attention + 2 * hidden * inner + inner + hidden + 4 * hidden
        deepstack = len(tower.deepstack_blocks) * (2 * merged + projector)
        learnt = hidden + tower.position_grid * hidden  # the patches' bias, and positions
        return patches + learnt + tower.depth * block + 2 * hidden + projector + deepstack
    block = attention + 3 * hidden * inner + 2 * inner + hidden + 2 * hidden
    return patches + tower.depth * block + hidden + projector
