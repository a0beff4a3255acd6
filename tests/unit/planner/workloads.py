"""Workloads for the planner's tests."""

from dataclasses import replace
from typing import Any

from rollplex.api.shapes import SHAPES
from rollplex.planner.hardware import PROFILES, Hardware
from rollplex.planner.workload import Workload

H800 = PROFILES["h800"]


def hardware(**changes: Any) -> Hardware:
    return replace(H800, **changes)


def workload(**changes: Any) -> Workload:
    """16 ranks of a 7B model: 16 groups of 4 on each of 4 train TP groups."""
    base = Workload(
        shape=SHAPES["qwen2.5-vl-7b"],
        ranks=16,
        train_tensor=4,
        rollout_tensor=2,
        prompts=64,
        group_size=4,
        prompt_tokens=1000,
        media_tokens=900,
        response_tokens=100,
        max_response_tokens=300,
        reference=True,
        shared_tower=False,
        trained_tower=True,
        share_prefix=True,
        run_ahead=None,
        micro_batch_tokens=4096,
        item_bytes=2,
    )
    return replace(base, **changes)
