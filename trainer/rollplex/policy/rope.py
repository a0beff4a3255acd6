"""Multimodal rotary angles for Megatron-Core's layers, from position ids that are computed elsewhere, once."""

from __future__ import annotations

import torch


def rope_angles(
    positions: torch.Tensor, head_dim: int, theta: float, section: tuple[int, int, int], interleaved: bool = False
) -> torch.Tensor:
    """Angles [T, 1, 1, head_dim] float32 of positions [3, T] (time, height, width).

    Qwen2-VL (arXiv 2409.12191, section 2.1): the head_dim / 2 frequencies are dealt out in consecutive sections to the
    three axes; both halves of a head use the same angles (non-interleaved RoPE). ``interleaved``: they are dealt out in
    turn, time, height, width, as long as an axis has some left; the rest are time's (Qwen3-VL, arXiv 2511.21631).
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device=positions.device) / head_dim
    angles = positions[..., None].float() * (1.0 / theta**exponents)  # [3, T, head_dim / 2]
    if interleaved:
        dealt = angles[0].clone()
        for axis in (1, 2):
            turns = slice(axis, 3 * section[axis], 3)
            dealt[:, turns] = angles[axis, :, turns]
    else:
        dealt = torch.cat([chunk[axis] for axis, chunk in enumerate(angles.split(list(section), dim=-1))], dim=-1)
    return torch.cat([dealt, dealt], dim=-1)[:, None, None, :]
