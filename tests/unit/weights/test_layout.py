"""Interval maps between the trainer's and the rollout's shards, and the verdicts read off them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollplex.api.shapes import SHAPES, ModelShape, VisionShape
from rollplex.weights.layout import (
    Atom,
    LayoutError,
    ParameterLayout,
    Verdict,
    interval_map,
    layouts,
    shares,
)
from rollplex.weights.parameters import Parameter, language_parameters

VISION = VisionShape(depth=1, hidden=16, heads=2, intermediate=16, full_attention_blocks=())


def small(heads: int, kv_heads: int, ffn: int = 48, vocabulary: int = 96) -> ModelShape:
    return ModelShape("small", heads * 4, 2, ffn, heads, kv_heads, vocabulary, VISION)


def train_shards(parameter: Parameter, degree: int) -> list[np.ndarray]:
    """Row indices of the whole tensor as Megatron-Core cuts them; whole = parts one after another."""
    rows, at = {}, 0
    units = parameter.units or 1
    for part, size in parameter.parts:
        rows[part] = np.arange(at, at + units * size)
        at += units * size
    if not parameter.units:
        return [np.concatenate([np.split(part, degree)[rank] for part in rows.values()]) for rank in range(degree)]
    by_unit = [np.concatenate([np.split(part, units)[unit] for part in rows.values()]) for unit in range(units)]
    return list(np.split(np.concatenate(by_unit), degree))


def rollout_shards(parameter: Parameter, degree: int) -> list[np.ndarray]:
    return train_shards(Parameter(parameter.name, parameter.shape, 1, 0, whole_parts(parameter)), degree)


def whole_parts(parameter: Parameter) -> tuple[tuple[str, int], ...]:
    return tuple((part, (parameter.units or 1) * size) for part, size in parameter.parts)


def by_rows(layout: ParameterLayout) -> bool:
    return layout.parameter.axis == 0


degrees = st.sampled_from([(1, 1), (2, 2), (4, 4), (8, 4), (8, 2), (4, 2), (2, 4), (1, 8), (8, 8), (4, 1)])


@given(degrees, st.sampled_from([1, 2, 5]), st.sampled_from([8, 16]))
def test_interval_map_takes_every_row_from_where_the_trainer_has_it(
    pair: tuple[int, int], per_group: int, kv_heads: int
) -> None:
    train, rollout = pair
    for layout in filter(by_rows, layouts(small(per_group * kv_heads, kv_heads), train, rollout)):
        held = train_shards(layout.parameter, train)
        wanted = rollout_shards(layout.parameter, rollout)
        got = [np.full(len(shard), -1) for shard in wanted]
        for run in layout.runs:
            rows = slice(run.rollout_row, run.rollout_row + run.length)
            assert (got[run.rollout_rank][rows] == -1).all()
            got[run.rollout_rank][rows] = held[run.train_rank][run.train_row : run.train_row + run.length]
        for ours, theirs in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@given(degrees, st.sampled_from([1, 2, 5]), st.sampled_from([8, 16]))
def test_alias_is_a_strided_view_and_copy_is_none(pair: tuple[int, int], per_group: int, kv_heads: int) -> None:
    train, rollout = pair
    for layout in filter(by_rows, layouts(small(per_group * kv_heads, kv_heads), train, rollout)):
        held = train_shards(layout.parameter, train)
        views = [
            is_strided(mine, theirs)
            for mine in held
            for theirs in rollout_shards(layout.parameter, rollout)
            if set(mine) & set(theirs)
        ]
        assert all(views) == (layout.verdict is Verdict.ALIAS)


def is_strided(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether the smaller array is numpy's two-dimensional strided view of the larger, tried in every way."""
    small_one, large = sorted((one, other), key=len)
    index = {row: at for at, row in enumerate(large)}
    if not set(small_one) <= set(index):
        return False
    places = np.array([index[row] for row in small_one])
    for pieces in range(1, len(places) + 1):
        if len(places) % pieces:
            continue
        grid = places.reshape(pieces, -1)
        steps = np.diff(grid[:, 0])
        if (
            (np.diff(grid, axis=1) == 1).all()
            and (steps == (steps[0] if len(steps) else 0)).all()
            and (steps > 0).all()
        ):
            return True
    return False


def test_shares_of_a_32b_follow_from_its_config() -> None:
    found = shares(SHAPES["qwen2.5-vl-32b"], train_tensor=8, rollout_tensor=4)
    assert [round(100 * share, 1) for share in (found.alias, found.transpose, found.copy)] == [60.1, 32.8, 7.2]
    assert round(found.copied_bytes / 2**30, 1) == 1.1
    assert round(found.full_copy_bytes / 2**30, 1) == 7.6


def test_columns_are_transposed_only_where_the_degrees_differ() -> None:
    shape = small(16, 8)
    for pair, verdict in (((4, 4), Verdict.ALIAS), ((8, 4), Verdict.TRANSPOSE), ((2, 4), Verdict.TRANSPOSE)):
        found = {x.parameter.name: x.verdict for x in layouts(shape, *pair)}
        assert found["linear_proj"] == found["linear_fc2"] == verdict


def test_qkv_is_aliased_where_a_rank_has_one_query_group() -> None:
    found = {x.parameter.name: x.verdict for x in layouts(small(40, 8), 8, 8)}
    assert set(found.values()) == {Verdict.ALIAS}


@pytest.mark.parametrize(
    ("shape", "train", "rollout", "says"),
    [
        (small(64, 2), 8, 8, "parallelism.train.tensor is 8, but small has 2 KV heads"),  # case 42
        (small(16, 8, ffn=50), 4, 2, "50 FFN rows"),
        (small(16, 8, vocabulary=97), 2, 1, "97 vocabulary rows"),
        (small(48, 12), 4, 6, "one must divide the other"),
        (small(16, 8), 4, 0, "parallelism.rollout.tensor is 0"),
    ],
)
def test_degrees_that_do_not_fit_are_refused(shape: ModelShape, train: int, rollout: int, says: str) -> None:
    with pytest.raises(LayoutError, match=says):
        layouts(shape, train, rollout)


def test_rows_that_nobody_or_two_hold_are_refused() -> None:
    with pytest.raises(LayoutError, match="rows 4 to 8 of q are held by no trainer rank"):
        list(interval_map([[Atom("q", 0, 4)]], [[Atom("q", 0, 8)]]))
    with pytest.raises(LayoutError, match="held by two"):
        list(interval_map([[Atom("q", 0, 4)], [Atom("q", 2, 4)]], [[Atom("q", 0, 6)]]))


def test_tied_embeddings_count_once() -> None:
    tied = sum(parameter.elements for parameter in language_parameters(SHAPES["qwen2.5-vl-3b"]))
    assert 3.0e9 < tied < 3.2e9
