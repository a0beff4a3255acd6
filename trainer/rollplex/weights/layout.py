"""How the rollout's weights relate to the trainer's for a pair of tensor degrees: alias, transpose or copy (pure).

Both engines cut a parameter into shards; they differ in the order of rows. A shard is written as *atoms*, runs of rows
of a named part (q, k, v, gate, up) of the whole tensor. Cutting a rollout shard's atoms where the trainer's end gives
the interval map, and the verdict is read off it:

alias      one shard is a strided view of the other: equal runs at equal distances, in one order.
transpose  shards are cut along columns. Stored transposed, columns are rows and the above holds; both engines then
           read ``.t()`` of it.
copy       neither: the rollout keeps rows of its own, re-laid-out at every publish.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from rollplex.api.shapes import ModelShape
from rollplex.weights.parameters import Parameter, language_parameters


class LayoutError(ValueError):
    """A tensor degree that cannot cut this model evenly."""


class Verdict(StrEnum):
    """What a rollout weight is of the trainer's."""

    ALIAS = "alias"
    TRANSPOSE = "transpose"
    COPY = "copy"


@dataclass(frozen=True, slots=True)
class Atom:
    """Rows [start, start + length) of a part of the whole tensor."""

    part: str
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class Run:
    """Rows that follow one another in both shards."""

    rollout_rank: int
    rollout_row: int
    train_rank: int
    train_row: int
    length: int


@dataclass(frozen=True)
class ParameterLayout:
    """A parameter's verdict and interval map (of rows; of columns where ``axis`` is 1; empty where it is not cut)."""

    parameter: Parameter
    verdict: Verdict
    runs: tuple[Run, ...]


def layouts(shape: ModelShape, train_tensor: int, rollout_tensor: int) -> tuple[ParameterLayout, ...]:
    """Every parameter's verdict and interval map.

    Raises:
        LayoutError: a degree that does not divide KV heads, FFN or vocabulary, or degrees neither of which divides the
            other.
    """
    for name, degree in (("train", train_tensor), ("rollout", rollout_tensor)):
        _check_degree(shape, name, degree)
    if max(train_tensor, rollout_tensor) % min(train_tensor, rollout_tensor):
        raise LayoutError(
            f"parallelism: train.tensor {train_tensor} and rollout.tensor {rollout_tensor}: one must divide the other"
        )
    return tuple(_layout(parameter, train_tensor, rollout_tensor) for parameter in language_parameters(shape))


def _check_degree(shape: ModelShape, name: str, degree: int) -> None:
    for what, size in (("KV heads", shape.kv_heads), ("FFN rows", shape.ffn), ("vocabulary rows", shape.vocabulary)):
        if degree < 1 or size % degree:
            raise LayoutError(
                f"parallelism.{name}.tensor is {degree}, but {shape.name} has {size} {what}: "
                f"choose a degree that divides them"
            )


def _layout(parameter: Parameter, train: int, rollout: int) -> ParameterLayout:
    if parameter.axis is None:
        return ParameterLayout(parameter, Verdict.ALIAS, ())
    if parameter.axis == 1:
        columns = (Atom("column", 0, parameter.shape[1]),)
        runs = tuple(interval_map(_cut(columns, train), _cut(columns, rollout)))
        return ParameterLayout(parameter, Verdict.ALIAS if train == rollout else Verdict.TRANSPOSE, runs)
    whole = _whole(parameter)
    trainer = _interleaved(parameter, train) if parameter.units else _cut(whole, train)
    runs = tuple(interval_map(trainer, _cut(whole, rollout)))
    return ParameterLayout(parameter, Verdict.ALIAS if _is_view(runs) else Verdict.COPY, runs)


def _whole(parameter: Parameter) -> tuple[Atom, ...]:
    units = parameter.units or 1
    return tuple(Atom(part, 0, units * rows) for part, rows in parameter.parts)


def _cut(whole: Sequence[Atom], degree: int) -> list[tuple[Atom, ...]]:
    """Each rank's share of every part, part after part: vLLM's order, and Megatron-Core's but for QKV."""
    return [
        tuple(Atom(atom.part, rank * (atom.length // degree), atom.length // degree) for atom in whole)
        for rank in range(degree)
    ]


def _interleaved(parameter: Parameter, degree: int) -> list[tuple[Atom, ...]]:
    """Megatron-Core's QKV: query group by query group, [q..q, k, v] of each."""
    share = parameter.units // degree
    return [
        tuple(
            Atom(part, unit * rows, rows)
            for unit in range(rank * share, (rank + 1) * share)
            for part, rows in parameter.parts
        )
        for rank in range(degree)
    ]


def interval_map(trainer: Sequence[Sequence[Atom]], rollout: Sequence[Sequence[Atom]]) -> Iterator[Run]:
    """Where each row of each rollout shard lies in the trainer's shards; runs are as long as both orders allow.

    Raises:
        LayoutError: a row that no trainer shard holds, or that two do.
    """
    held: dict[str, list[tuple[int, int, int, int]]] = {}  # part -> (start, end, rank, row in the shard)
    for rank, shard in enumerate(trainer):
        row = 0
        for atom in shard:
            held.setdefault(atom.part, []).append((atom.start, atom.start + atom.length, rank, row))
            row += atom.length
    for part, pieces in held.items():
        pieces.sort()
        if any(before[1] > after[0] for before, after in pairwise(pieces)):
            raise LayoutError(f"rows of {part} are held by two trainer ranks")
    for rank, shard in enumerate(rollout):
        row = 0
        for atom in shard:
            yield from _merged(_pieces(atom, rank, row, held.get(atom.part, [])))
            row += atom.length


def _pieces(atom: Atom, rank: int, row: int, held: Sequence[tuple[int, int, int, int]]) -> Iterator[Run]:
    at, end = atom.start, atom.start + atom.length
    for low, high, train_rank, train_row in held:
        if high <= at or low >= end:
            continue
        if low > at:
            break
        length = min(high, end) - at
        yield Run(rank, row + at - atom.start, train_rank, train_row + at - low, length)
        at += length
    if at < end:
        raise LayoutError(f"rows {at} to {end} of {atom.part} are held by no trainer rank")


def _merged(runs: Iterator[Run]) -> Iterator[Run]:
    last: Run | None = None
    for run in runs:
        if last and run.train_rank == last.train_rank and run.train_row == last.train_row + last.length:
            last = Run(last.rollout_rank, last.rollout_row, last.train_rank, last.train_row, last.length + run.length)
            continue
        if last:
            yield last
        last = run
    if last:
        yield last


def _is_view(runs: Sequence[Run]) -> bool:
    """Between any two shards that share rows, one strides the other: equal runs at equal distances, in one order."""
    pairs: dict[tuple[int, int], list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.train_row):
        pairs.setdefault((run.train_rank, run.rollout_rank), []).append(run)
    return all(_strides(shared) for shared in pairs.values())


def _strides(shared: Sequence[Run]) -> bool:
    if len({run.train_row - run.rollout_row for run in shared}) == 1:
        return True  # one piece of memory
    steps = {(b.train_row - a.train_row, b.rollout_row - a.rollout_row) for a, b in pairwise(shared)}
    return len({run.length for run in shared}) == 1 and len(steps) == 1 and min(min(steps)) > 0


@dataclass(frozen=True)
class Shares:
    """Of the language model's parameters; bytes are one rank's."""

    alias: float
    transpose: float
    copy: float
    copied_bytes: int  # what the rollout keeps beside the trainer's weights
    full_copy_bytes: int  # the trainer's whole shard, which a second copy would take at least
    gathered_bytes: int  # rows of aliased and transposed weights that peers of the train TP group hold


def shares(shape: ModelShape, train_tensor: int, rollout_tensor: int, item_bytes: int = 2) -> Shares:
    """How much is aliased, viewed and copied; :class:`LayoutError` as :func:`layouts`."""
    found = layouts(shape, train_tensor, rollout_tensor)
    total = sum(layout.parameter.elements for layout in found)
    part = {verdict: sum(x.parameter.elements for x in found if x.verdict is verdict) for verdict in Verdict}
    own = sum(_shard(layout.parameter, train_tensor) for layout in found)
    viewed = [layout.parameter for layout in found if layout.verdict is not Verdict.COPY]
    missing = sum(max(0, _shard(p, rollout_tensor) - _shard(p, train_tensor)) for p in viewed)
    copied = sum(_shard(x.parameter, rollout_tensor) for x in found if x.verdict is Verdict.COPY)
    return Shares(
        part[Verdict.ALIAS] / total,
        part[Verdict.TRANSPOSE] / total,
        part[Verdict.COPY] / total,
        copied * item_bytes,
        own * item_bytes,
        missing * item_bytes,
    )


def _shard(parameter: Parameter, degree: int) -> int:
    return parameter.elements if parameter.axis is None else parameter.elements // degree
