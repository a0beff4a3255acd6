"""Prompts as the engine takes them when nothing is left to process.

The ids are expanded and the pixels are patches already, both made once for trainer and engine: vLLM's own tokenizer and
image processor are never asked, so there is no second path that could disagree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from vllm.inputs.engine import mm_input, tokens_input
from vllm.multimodal.inputs import (
    MultiModalFieldConfig,
    MultiModalKwargsItem,
    MultiModalKwargsItems,
    PlaceholderRange,
)

from rollplex.batch import Media, Prompt


def engine_input(prompt: Prompt, merge: int) -> Any:
    """A processed engine input of a prompt; ``merge`` is the side of the square of patches behind one token."""
    if not prompt.media:
        return tokens_input(list(prompt.token_ids))
    items: dict[str, list[MultiModalKwargsItem]] = {}
    hashes: dict[str, list[str]] = {}
    places: dict[str, list[PlaceholderRange]] = {}
    for media, starts in zip(prompt.media, prompt.media_starts, strict=True):
        items.setdefault(media.kind, []).append(_item(media))
        # keys of the encoder cache and, with the ids, of the prefix cache: equal only for equal pixels and timing
        hashes.setdefault(media.kind, []).append(media.key)
        places.setdefault(media.kind, []).append(_place(starts, media.tokens(merge) // len(starts)))
    return mm_input(list(prompt.token_ids), MultiModalKwargsItems(items), hashes, places)


def _place(starts: Sequence[int], length: int) -> PlaceholderRange:
    """From the first run to the last; what stands between equally long runs keeps its embeddings."""
    if len(starts) == 1:
        return PlaceholderRange(offset=starts[0], length=length)
    embedded = torch.zeros(starts[-1] + length - starts[0], dtype=torch.bool)
    for start in starts:
        embedded[start - starts[0] :][:length] = True
    return PlaceholderRange(offset=starts[0], length=embedded.numel(), is_embed=embedded)


def runs_of(place: PlaceholderRange) -> tuple[int, ...]:
    """Where the runs of placeholders of a medium begin: what :func:`_place` was made of."""
    if place.is_embed is None:
        return (place.offset,)
    before = torch.cat([place.is_embed.new_zeros(1), place.is_embed[:-1]])
    return tuple((place.offset + torch.nonzero(place.is_embed & ~before)[:, 0]).tolist())


def _item(media: Media) -> MultiModalKwargsItem:
    kind = media.kind
    pixels, grid = ("pixel_values", "image_grid_thw") if kind == "image" else ("pixel_values_videos", "video_grid_thw")
    data = {pixels: media.patches, grid: torch.tensor([media.grid])}
    fields = {
        pixels: MultiModalFieldConfig.flat_from_sizes(kind, torch.tensor([media.patches.size(0)])),
        grid: MultiModalFieldConfig.batched(kind, keep_on_cpu=True),
    }
    if kind == "video":
        # float64: the position rule multiplies and truncates, a float32 0.3 would land elsewhere
        data["second_per_grid_ts"] = torch.tensor([media.seconds_per_grid], dtype=torch.float64)
        fields["second_per_grid_ts"] = MultiModalFieldConfig.batched(kind, keep_on_cpu=True)
    return MultiModalKwargsItems.from_hf_inputs(data, fields)[kind][0]
