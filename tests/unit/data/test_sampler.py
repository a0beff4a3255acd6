from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollplex.data.sampler import Sampler


@given(length=st.integers(1, 60), seed=st.integers(0, 2**31), epoch=st.integers(0, 50))
def test_an_epoch_shows_every_row_once_and_depends_on_seed_and_position_alone(
    length: int, seed: int, epoch: int
) -> None:
    positions = range(epoch * length, (epoch + 1) * length)
    forwards = Sampler(length, seed)
    order = [forwards.row(position) for position in positions]
    assert sorted(order) == list(range(length))
    backwards = Sampler(length, seed)
    assert [backwards.row(position) for position in reversed(positions)] == order[::-1]


def test_epochs_and_seeds_have_their_own_orders() -> None:
    orders = {
        tuple(Sampler(50, seed).row(epoch * 50 + place) for place in range(50))
        for seed in (1, 2)
        for epoch in (0, 1, 2)
    }
    assert len(orders) == 6


def test_the_order_does_not_change_between_releases() -> None:
    # a run that resumes under a later release must go on with the rows that it has not seen
    assert [Sampler(8, 1).row(position) for position in range(10)] == [1, 5, 4, 2, 7, 0, 3, 6, 1, 5]


def test_an_empty_set_has_no_sampler() -> None:
    with pytest.raises(ValueError, match="length is 0"):
        Sampler(0, 1)
