"""A process's first step runs under ``serial``: it must not make a resumed run another one than a straight run."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.engine.exact.batch import Case
from tests.engine.exact.harness import run_step
from tests.engine.tiny import random_policy, tiny_shape


def gradients(**case: Any) -> dict[str, torch.Tensor]:
    actor, initial = random_policy(tiny_shape(), seed=50), random_policy(tiny_shape(), seed=51).requires_grad_(False)
    return run_step(actor, initial, Case(**case))[1]


@pytest.mark.parametrize("budget", [60, 10_000])
@pytest.mark.parametrize(
    ("mode", "deterministic", "run_ahead"),
    [("overlap", False, "auto"), ("overlap", False, 2), ("stream", True, "auto")],
)
def test_serial_gives_the_same_bits(mode: str, deterministic: bool, run_ahead: int | str, budget: int) -> None:
    fixed: dict[str, Any] = {"deterministic": deterministic, "run_ahead": run_ahead, "budget": budget}
    first = gradients(mode="serial", **fixed)
    for order in (0, 3):
        later = gradients(mode=mode, order=order, **fixed)
        assert all(torch.equal(first[name], later[name]) for name in first), order
