"""Which long-lived tensors are in HBM in which phase of a step, where they lie, and what has to go to stay in a budget.

Pure. A *decision* is something that can be kept in more than one way (activations: keep, offload, recompute); an
option of it says which tensors then live when, and what it costs in predicted seconds a step. The plan takes the
options whose peak stays under the budget at the least cost, then at the least peak.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from rollplex.memory.ledger import StateClass


@dataclass(frozen=True, slots=True)
class Tensors:
    """A group of tensors that is born and dies together: ``size`` bytes from phase ``first`` through ``last``."""

    name: str
    state_class: StateClass
    size: int
    first: int
    last: int

    def lives_in(self, phase: int) -> bool:
        return self.first <= phase <= self.last

    def meets(self, other: Tensors) -> bool:
        """Whether both are alive in some phase."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True)
class Option:
    """One way of a decision, and the seconds that it adds to a step."""

    name: str
    tensors: tuple[Tensors, ...]
    seconds: float = 0.0


@dataclass(frozen=True)
class Residency:
    """A plan: what was chosen, what lives when, and where each group lies (offsets in bytes)."""

    phases: tuple[str, ...]
    tensors: tuple[Tensors, ...]
    choices: Mapping[str, str]
    seconds: float  # that the choices add to a step
    budget: int
    offsets: Mapping[Tensors, int]

    @property
    def peaks(self) -> tuple[int, ...]:
        """Bytes that live in each phase."""
        return tuple(_alive(self.tensors, phase) for phase in range(len(self.phases)))

    @property
    def peak(self) -> int:
        """Bytes that live at once at most."""
        return max(self.peaks)

    @property
    def span(self) -> int:
        """Addresses that the layout takes; above the peak by what could not be packed."""
        return max((offset + tensors.size for tensors, offset in self.offsets.items()), default=0)

    @property
    def fits(self) -> bool:
        return self.peak <= self.budget


def plan(
    phases: Sequence[str], fixed: Sequence[Tensors], decisions: Mapping[str, Sequence[Option]], budget: int
) -> Residency:
    """The cheapest way under ``budget`` bytes; where there is none, the one of the smallest peak (``fits`` is False).

    Every combination is looked at: decisions and their options are few.

    Raises:
        ValueError: tensors outside the phases or of no size, or a decision without options.
    """
    for group in [*fixed, *(group for options in decisions.values() for option in options for group in option.tensors)]:
        if not 0 <= group.first <= group.last < len(phases) or group.size < 0:
            raise ValueError(f"{group.name}: {group.size} bytes in phases {group.first} to {group.last}")
    if empty := [name for name, options in decisions.items() if not options]:
        raise ValueError(f"nothing to decide between: {', '.join(empty)}")
    best: tuple[tuple[float, ...], tuple[Option, ...]] | None = None
    for chosen in product(*decisions.values()):
        peak = _peak(len(phases), fixed, chosen)
        seconds = sum(option.seconds for option in chosen)
        rank = (0.0, seconds, float(peak)) if peak <= budget else (1.0, float(peak), seconds)
        if best is None or rank < best[0]:
            best = rank, chosen
    assert best is not None
    chosen = best[1]
    everything = (*fixed, *(group for option in chosen for group in option.tensors))
    alive = tuple(group for group in everything if group.size)
    return Residency(
        tuple(phases),
        alive,
        {name: option.name for name, option in zip(decisions, chosen, strict=True)},
        sum(option.seconds for option in chosen),
        budget,
        layout(alive),
    )


def layout(tensors: Sequence[Tensors]) -> dict[Tensors, int]:
    """An offset for each group, so that groups alive together never overlap: longest life first, then largest."""
    placed: dict[Tensors, int] = {}
    for group in sorted(tensors, key=lambda group: (group.first - group.last, -group.size)):
        at = 0
        for other, offset in sorted(placed.items(), key=lambda item: item[1]):
            if group.meets(other) and offset < at + group.size and at < offset + other.size:
                at = offset + other.size
        placed[group] = at
    return placed


def _alive(tensors: Sequence[Tensors], phase: int) -> int:
    return sum(group.size for group in tensors if group.lives_in(phase))


def _peak(phases: int, fixed: Sequence[Tensors], chosen: Sequence[Option]) -> int:
    everything = [*fixed, *(tensors for option in chosen for tensors in option.tensors)]
    return max(_alive(everything, phase) for phase in range(phases))
