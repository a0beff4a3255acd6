"""One number from many tokens: what counts how much, and that no split into passes changes it."""

from __future__ import annotations

from itertools import pairwise
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollplex.algorithms.grpo import group_advantages
from rollplex.algorithms.normalization import batch_scale, token_weight
from rollplex.api.algorithm import Normalization

BOTH: tuple[Normalization, ...] = ("token", "sequence")
ALL: tuple[Normalization, ...] = (*BOTH, "sum", "constant")
MAX_TOKENS = 10


def total(normalization: Normalization, responses: list[list[float]], cuts: list[int]) -> float:
    """Loss of a batch from per-token losses, its responses cut into passes."""
    summed = 0.0
    for start, stop in pairwise([0, *cuts, len(responses)]):
        passed = responses[start:stop]
        summed += sum(sum(tokens) * token_weight(normalization, len(tokens)) for tokens in passed if tokens)
    return summed * batch_scale(normalization, [len(tokens) for tokens in responses], MAX_TOKENS)


def test_tokens_or_sequences_count_the_same() -> None:
    responses = [[1.0], [2.0, 4.0], [], [6.0, 6.0, 6.0]]
    assert total("token", responses, []) == pytest.approx((1 + 2 + 4 + 6 + 6 + 6) / 6)
    assert total("sequence", responses, []) == pytest.approx((1 + 3 + 0 + 6) / 4)


def test_sums_by_response_or_by_the_longest_that_could_be() -> None:
    responses = [[1.0], [2.0, 4.0], [], [6.0, 6.0, 6.0]]
    assert total("sum", responses, []) == pytest.approx((1 + 6 + 0 + 18) / 4)
    assert total("constant", responses, []) == pytest.approx((1 + 6 + 0 + 18) / (4 * MAX_TOKENS))


@pytest.mark.parametrize("normalization", BOTH)
def test_an_empty_response_is_a_member_without_tokens(normalization: Normalization) -> None:
    """Responses [[], [5, 6]] with rewards [10, 0]: the empty one sets its peer's advantage, which has all tokens."""
    advantages = group_advantages([10.0, 0.0])
    assert advantages[1] == pytest.approx(-1 / sqrt(2), rel=1e-5)
    loss = total(normalization, [[], [-advantages[1]] * 2], [])
    members = {"token": 1, "sequence": 2}[normalization]
    assert loss == pytest.approx(1 / sqrt(2) / members, rel=1e-5)


@pytest.mark.parametrize("normalization", ALL)
@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 0]])
def test_without_tokens_there_is_nothing_to_scale(normalization: Normalization, lengths: list[int]) -> None:
    assert batch_scale(normalization, lengths, MAX_TOKENS) == 0.0


@given(
    st.sampled_from(ALL),
    st.lists(st.lists(st.floats(-10, 10), max_size=10), min_size=1, max_size=8),
    st.data(),
)
def test_no_split_into_passes_changes_the_loss(
    normalization: Normalization, responses: list[list[float]], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(responses)), max_size=4)))
    if any(responses):
        assert total(normalization, responses, cuts) == pytest.approx(total(normalization, responses, []), abs=1e-9)
    else:
        assert total(normalization, responses, cuts) == 0.0
