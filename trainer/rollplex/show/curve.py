"""The reward of a run as coordinates of a small picture (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WIDTH, HEIGHT = 1240.0, 200.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 12.0, 12.0, 24.0


@dataclass(frozen=True)
class Curve:
    """Points are "x,y x,y ..." as SVG writes them; ticks and marks are (place, label)."""

    reward: str
    evaluated: Sequence[tuple[float, float, str]]  # x, y, what it says
    x_ticks: Sequence[tuple[float, str]]
    y_ticks: Sequence[tuple[float, str]]
    shown_x: float | None  # of the step that the page shows
    width: float = WIDTH
    height: float = HEIGHT
    left: float = _LEFT
    right: float = WIDTH - _RIGHT
    top: float = _TOP
    bottom: float = HEIGHT - _BOTTOM


def curve(metrics: Sequence[Mapping[str, Any]], step: int) -> Curve | None:
    """Mean rewards over the steps, with the held-out ones; None where nothing finite was written."""
    rewards = _series(metrics, "reward/mean")
    held_out = _series(metrics, "eval/reward/mean")
    if not rewards:
        return None
    values = [value for _, value in rewards + held_out]
    first, last = rewards[0][0], rewards[-1][0]
    low, high = min(values), max(values)
    if low == high:
        low, high = low - 0.5, high + 0.5

    def x(at: float) -> float:
        share = (at - first) / (last - first) if last > first else 0.5
        return round(_LEFT + share * (WIDTH - _LEFT - _RIGHT), 2)

    def y(value: float) -> float:
        return round(_TOP + (high - value) / (high - low) * (HEIGHT - _TOP - _BOTTOM), 2)

    steps = sorted({first, first + (last - first) // 2, last})
    return Curve(
        reward=" ".join(f"{x(at)},{y(value)}" for at, value in rewards),
        evaluated=[(x(at), y(value), f"step {at}: held-out {value:.3f}") for at, value in held_out],
        x_ticks=[(x(at), str(at)) for at in steps],
        y_ticks=[(y(value), f"{value:.2f}") for value in (low, (low + high) / 2, high)],
        shown_x=x(step) if first <= step <= last else None,
    )


def _series(metrics: Sequence[Mapping[str, Any]], name: str) -> list[tuple[int, float]]:
    return [(row["step"], row[name]) for row in metrics if row.get(name) is not None]
