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


GROUPS = st.lists(st.integers(0, 12) | st.none(), min_size=1, max_size=80)


@given(groups=GROUPS, batch=st.integers(1, 9), seed=st.integers(0, 99), epochs=st.integers(1, 4))
def test_grouped_epochs_show_every_row_once_too(groups: list[int | None], batch: int, seed: int, epochs: int) -> None:
    length = len(groups)
    forwards = Sampler(length, seed, groups, batch)
    order = [forwards.row(position) for position in range(epochs * length)]
    for epoch in range(epochs):
        assert sorted(order[epoch * length : (epoch + 1) * length]) == list(range(length))
    backwards = Sampler(length, seed, groups, batch)
    assert [backwards.row(position) for position in reversed(range(epochs * length))] == order[::-1]


@given(groups=GROUPS, batch=st.integers(1, 9), seed=st.integers(0, 99))
def test_a_batch_cuts_one_group_at_most_and_only_where_no_other_fits(
    groups: list[int | None], batch: int, seed: int
) -> None:
    """Seen from outside: how the epoch's rows lie in batches."""
    length = len(groups)
    sampler = Sampler(length, seed, groups, batch)
    order = [sampler.row(position) for position in range(length)]
    names = [groups[row] if groups[row] is not None else f"row {row}" for row in order]
    batches = [names[at : at + batch] for at in range(0, length, batch)]
    sizes = {name: names.count(name) for name in names}
    seen: set[object] = set()
    for here in batches:
        cut = {name for name in here if here.count(name) < min(sizes[name], batch) and name not in seen}
        if any(sizes[name] > batch for name in sizes):
            seen |= set(here)  # a group of several batches has a rest, which is a group of its own
            continue
        assert len(cut) <= 1
        for name in cut:
            room = here.count(name)
            later = [other for other in sizes if other not in seen and other not in here]
            assert all(sizes[other] > room for other in later)
        seen |= set(here)


@pytest.mark.parametrize("seed", range(5))
def test_groups_that_fill_batches_are_never_cut_whatever_the_epoch(seed: int) -> None:
    """7 batches of 8 from videos with 4 questions each; the second epoch begins in the middle of a batch."""
    groups = [f"video {row // 4}" for row in range(60)]  # 60 is no multiple of 8
    sampler = Sampler(60, seed, groups, 8)
    for step in range(15):
        videos = [groups[sampler.row(step * 8 + place)] for place in range(8)]
        assert sorted(videos.count(video) for video in set(videos)) in ([4, 4], [8])
    first = [groups[sampler.row(place)] for place in range(60)]
    second = [groups[sampler.row(60 + place)] for place in range(60)]
    assert first != second


def test_grouped_order_does_not_change_between_releases() -> None:
    sampler = Sampler(8, 1, ["a", "a", "b", "b", "b", None, "c", "c"], 4)
    assert [sampler.row(position) for position in range(16)] == [1, 0, 5, 4, 2, 3, 7, 6, 1, 0, 5, 2, 3, 4, 6, 7]
