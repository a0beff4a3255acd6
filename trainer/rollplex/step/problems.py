"""Which samples' rewards failed, in words for the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rollplex.batch import Prompt
from rollplex.reward.pool import Score


def problem_lines(
    step: int, prompts: Sequence[Prompt], scores: Mapping[tuple[int, int], Score], most: int = 5
) -> list[str]:
    """One line for each reward part that failed, at most ``most`` of them, then how many more there are.

    ``scores`` are keyed by (prompt's index, sample).
    """
    lines = [
        f"step {step}, prompt {prompts[group].id}, sample {sample}: reward {part}: {detail}"
        for (group, sample), score in sorted(scores.items())
        for part, detail in score.details.items()
    ]
    more = len(lines) - most
    return lines if more <= 0 else [*lines[:most], f"step {step}: {more} more rewards failed"]
