"""Rewards of a step as metrics."""

from __future__ import annotations

import pytest

from rollplex.reward.pool import Score
from rollplex.step.metrics import reward_metrics


def test_rewards_and_their_parts() -> None:
    scores = {
        (0, 0): Score(1.5, {"exact": 1.0, "format": 0.5}),
        (0, 1): Score(0.5, {"exact": 0.0, "format": 0.5}),
        (1, 0): Score(0.0, {"exact": 0.0, "format": 0.0}, "error", {"format": "no"}),
        (1, 1): Score(0.0, {"exact": 0.0, "format": 0.0}, "timeout", {"format": "late"}),
    }
    metrics = reward_metrics(scores)
    assert metrics.pop("reward/std") == pytest.approx(0.6123724)
    assert metrics == {
        "reward/mean": 0.5,
        "reward/part/exact": 0.25,
        "reward/part/format": 0.25,
        "reward/zero_variance_groups": 1,
        "reward/timeouts": 1,
        "reward/errors": 1,
    }


@pytest.mark.parametrize("scores", [{}, {(0, 0): Score(0.0, {})}], ids=["no scores", "scores of no reward"])
def test_a_job_without_a_reward_has_no_metrics_of_it(scores: dict[tuple[int, int], Score]) -> None:
    assert reward_metrics(scores) == {}
