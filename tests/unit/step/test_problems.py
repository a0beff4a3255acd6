"""Failed rewards are named."""

from __future__ import annotations

import torch

from rollplex.batch import Prompt
from rollplex.reward.pool import Score
from rollplex.step.problems import problem_lines

PROMPTS = [Prompt(name, (1, 2), torch.zeros(3, 2, dtype=torch.int64)) for name in ("first", "second")]


def late(limit: float) -> Score:
    return Score(0.0, {"exact": 0.0, "slow": 0.0}, "timeout", {"slow": f"did not return within {limit:g} s"})


def test_failed_rewards_are_named_by_prompt_sample_and_part() -> None:
    scores = {(1, 0): late(2), (0, 1): late(1), (0, 0): Score(1.0, {"exact": 1.0, "slow": 0.0})}
    assert problem_lines(7, PROMPTS, scores) == [
        "step 7, prompt first, sample 1: reward slow: did not return within 1 s",
        "step 7, prompt second, sample 0: reward slow: did not return within 2 s",
    ]


def test_many_failed_rewards_are_counted() -> None:
    lines = problem_lines(7, PROMPTS, {(0, sample): late(1) for sample in range(9)}, most=2)
    assert len(lines) == 3
    assert lines[-1] == "step 7: 7 more rewards failed"
