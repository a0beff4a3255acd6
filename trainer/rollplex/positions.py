"""Rotary position ids, computed once, by one rule, for trainer, reference and engine.

The rule is the one of Qwen's authors and of vLLM: text runs count up on all three axes together; a medium's tokens take
(time, height, width) from its grid, time scaled by seconds; what follows a medium continues at the largest position so
far plus one. (transformers 5.19 continues at start + max(h, w) instead, which for Qwen2.5-VL costs 0.3-0.9 nats.)

Where temporal rows stand apart (Qwen3-VL), each is placed like an image and the text between them counts as text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch

from rollplex.api.shapes import ModelShape
from rollplex.batch import Media


def rope_positions(
    length: int,
    media: Sequence[Media],
    starts: Sequence[Sequence[int]],
    *,
    merge: int,
    tokens_per_second: int,
) -> torch.Tensor:
    """Position ids [3, length] int64 of a prompt.

    Args:
        length: tokens of the prompt, placeholders expanded.
        media: in order of appearance.
        starts: of each medium's runs of placeholders (:class:`rollplex.batch.Prompt`), the rows dealt out evenly.
        merge: side of the square of patches behind one token.
        tokens_per_second: temporal positions that a second of video advances.
    """
    axes = np.empty((3, length), dtype=np.int64)
    at = following = 0  # next token, next free position
    for item, runs in zip(media, starts, strict=True):
        t, h, w = item.grid
        grid = np.indices((t // len(runs), h // merge, w // merge))
        if item.kind == "video":
            # float64 product then truncation, exactly as the engine does it: 0.5 s * 2/s must not become 0
            grid[0] = (grid[0] * (tokens_per_second * item.seconds_per_grid)).astype(np.int64)
        for start in runs:
            axes[:, at:start] = np.arange(following, following + start - at)
            following += start - at
            run = grid.reshape(3, -1) + following
            at = start + run.shape[1]
            if at > length:
                raise ValueError(
                    f"medium at token {start} needs {run.shape[1]} tokens, but the prompt ends at {length}"
                )
            axes[:, start:at] = run
            following = int(run.max()) + 1
    axes[:, at:] = np.arange(following, following + length - at)
    return torch.from_numpy(axes)


def suffix_positions(positions: torch.Tensor, response_tokens: int) -> torch.Tensor:
    """Positions [3, response_tokens] of a suffix: the last prompt token, then all response tokens but the last.

    ``positions`` is the prompt's [3, P]; the last response token is a target and never an input.
    """
    following = int(positions.max()) + 1
    rest = torch.arange(following, following + response_tokens - 1, dtype=torch.int64).expand(3, -1)
    return torch.cat([positions[:, -1:], rest], dim=1)


def positions_of_inputs(inputs: Mapping[str, Any], shape: ModelShape) -> torch.Tensor:
    """Position ids [3, 1, P] for a transformers model, from what its processor made of one prompt.

    Args:
        inputs: ``input_ids`` [1, P], and ``image_grid_thw``, ``video_grid_thw``, ``second_per_grid_ts`` where there are
            media.
        shape: of the model.
    """
    (ids,) = torch.as_tensor(inputs["input_ids"]).tolist()
    merge = shape.vision.merge
    waiting = {"image": [_unread("image", grid) for grid in _rows(inputs, "image_grid_thw")], "video": []}
    grids = _rows(inputs, "video_grid_thw")
    if shape.family.time_as_text:  # temporal rows stand apart: each is placed on its own
        waiting["video"] = [_unread("video", [1, h, w]) for t, h, w in grids for _ in range(t)]
    else:
        seconds = _rows(inputs, "second_per_grid_ts")
        waiting["video"] = [_unread("video", grid, s) for grid, s in zip(grids, seconds, strict=True)]
    media: list[Media] = []
    starts: list[tuple[int]] = []
    at = 0
    while at < len(ids):
        kind = {shape.image_token: "image", shape.video_token: "video"}.get(ids[at])
        if kind is None or not waiting[kind]:  # a placeholder that stands for nothing is an ordinary token
            at += 1
            continue
        media.append(waiting[kind].pop(0))
        starts.append((at,))
        at += media[-1].tokens(merge)
    rule = {"merge": merge, "tokens_per_second": shape.vision.tokens_per_second}
    return rope_positions(len(ids), media, starts, **rule)[:, None]


def _unread(kind: Literal["image", "video"], grid: Sequence[int], seconds: float = 0.0) -> Media:
    t, h, w = map(int, grid)
    return Media(kind, torch.empty(0), (t, h, w), float(seconds))


def _rows(inputs: Mapping[str, Any], name: str) -> list[Any]:
    value = inputs.get(name)
    return [] if value is None else torch.as_tensor(value).tolist()
