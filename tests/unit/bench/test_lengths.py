from __future__ import annotations

from statistics import median

import pytest

from rollplex.api.errors import JobError
from rollplex.bench.lengths import response_lengths


def test_a_number_fixes_every_length() -> None:
    assert response_lengths("7", prompts=2, group_size=3, seed=1, longest=10) == ((7, 7, 7), (7, 7, 7))


def test_lognormal_follows_its_median_and_stays_in_bounds() -> None:
    lengths = response_lengths("lognormal:200:0.6", prompts=64, group_size=8, seed=1, longest=512)
    flat = [length for row in lengths for length in row]
    assert 180 <= median(flat) <= 220
    assert 1 <= min(flat) < 100
    assert 300 < max(flat) <= 512


def test_lengths_follow_the_seed() -> None:
    def drawn(seed: int) -> tuple[tuple[int, ...], ...]:
        return response_lengths("lognormal:20:0.5", prompts=4, group_size=4, seed=seed, longest=512)

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("many", "neither a number nor lognormal:MEDIAN:SIGMA"),
        ("lognormal:20", "neither a number nor"),
        ("0", "0 is not within 1 and rollout.maxTokens 64"),
        ("65", "65 is not within 1 and rollout.maxTokens 64"),
        ("lognormal:100:0.5", "median 100 is not within 1 and rollout.maxTokens 64"),
    ],
)
def test_other_specs_are_refused(spec: str, says: str) -> None:
    with pytest.raises(JobError, match=r"^--response-tokens: ") as caught:
        response_lengths(spec, prompts=1, group_size=2, seed=1, longest=64)
    assert says in str(caught.value)
