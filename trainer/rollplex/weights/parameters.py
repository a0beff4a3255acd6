"""The language model's parameters as a table: sizes, counts, and how tensor parallelism cuts them (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from rollplex.api.shapes import ModelShape


@dataclass(frozen=True)
class Parameter:
    """One parameter of the language model: its whole shape, how often it occurs and how it is cut.

    ``axis`` 0: rows, 1: columns, None: every rank has all of it. ``parts``: (name, rows of a unit) of a fused tensor;
    ``units`` > 0: the trainer interleaves the parts unit by unit (a query group), else each part is one unit.
    """

    name: str
    shape: tuple[int, ...]
    count: int
    axis: int | None
    parts: tuple[tuple[str, int], ...] = ()
    units: int = 0

    @property
    def elements(self) -> int:
        """Of all layers."""
        return self.count * prod(self.shape)


def language_parameters(shape: ModelShape) -> tuple[Parameter, ...]:
    """Every parameter of the language model by Megatron-Core's words; a tied head is the embedding."""
    hidden, layers, head = shape.hidden, shape.layers, shape.head_dim
    queries = shape.heads // shape.kv_heads * head
    parts = (("q", queries), ("k", head), ("v", head))
    rows = shape.kv_heads * (queries + 2 * head)
    gate_up = (("gate", shape.ffn), ("up", shape.ffn))
    found = [
        Parameter("embedding", (shape.vocabulary, hidden), 1, 0, (("token", shape.vocabulary),)),
        Parameter("linear_qkv.weight", (rows, hidden), layers, 0, parts, shape.kv_heads),
        Parameter("linear_proj", (hidden, shape.heads * head), layers, 1),
        Parameter("linear_fc1", (2 * shape.ffn, hidden), layers, 0, gate_up),
        Parameter("linear_fc2", (hidden, shape.ffn), layers, 1),
        Parameter("norms", (hidden,), 2 * layers + 1, None),
    ]
    if shape.family.qkv_bias:
        found.append(Parameter("linear_qkv.bias", (rows,), layers, 0, parts, shape.kv_heads))
    if shape.family.qk_norm:
        found.append(Parameter("qk_norms", (head,), 2 * layers, None))
    if not shape.tied_embeddings:
        found.append(Parameter("output_layer", (shape.vocabulary, hidden), 1, 0, (("token", shape.vocabulary),)))
    return tuple(found)
