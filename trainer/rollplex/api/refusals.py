"""Models that are refused, not approximated: what their ``config.json`` says that the split passes would not do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rollplex.api.families import FAMILIES, Family


class UnsupportedModelError(ValueError):
    """A model whose mathematics the split passes would not reproduce."""


def family_of(config: Mapping[str, Any]) -> Family:
    """The family of a parsed ``config.json``; raises UnsupportedModelError if it is none that we know."""
    kind = config.get("model_type")
    family = FAMILIES.get(str(kind))
    if family is None:
        known = ", ".join(repr(known) for known in FAMILIES)
        raise UnsupportedModelError(f"config.json: model_type is {kind!r}; supported: {known}")
    return family


def refuse_what_the_split_ignores(config: Mapping[str, Any], text: Mapping[str, Any], rope: Mapping[str, Any]) -> None:
    """Options that change the mathematics of attention in any family.

    Raises:
        UnsupportedModelError: one is set; the message names it, its value and the way out.
    """
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


def refuse_variants(family: Family, text: Mapping[str, Any], tower: Mapping[str, Any], rope: Mapping[str, Any]) -> None:
    """Options of a family that its released models do not use.

    Raises:
        UnsupportedModelError: one is set; the message names it, its value and what is supported.
    """
    if not family.qkv_bias and text.get("attention_bias"):
        raise UnsupportedModelError("config.json: attention_bias is true; supported for this model_type: false")
    if bool(rope.get("mrope_interleaved")) != family.interleaved_rope:
        raise UnsupportedModelError(
            f"config.json: mrope_interleaved is {rope.get('mrope_interleaved')}; supported for this model_type: "
            f"{str(family.interleaved_rope).lower()} (transformers would not read it, vLLM would)"
        )
    activation = tower.get("hidden_act", family.vision_activation)
    if activation != family.vision_activation:
        raise UnsupportedModelError(
            f"config.json: hidden_act of vision_config is {activation!r}; supported: {family.vision_activation!r}"
        )
    levels = len(tower.get("deepstack_visual_indexes", ()))
    if "deepstack_blocks" in family.vision and levels >= text["num_hidden_layers"]:
        raise UnsupportedModelError(
            f"config.json: deepstack_visual_indexes has {levels} entries, but num_hidden_layers is "
            f"{text['num_hidden_layers']}: what is added behind the last layer reaches no answer; name fewer"
        )
