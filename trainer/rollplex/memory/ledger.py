"""Who holds which bytes of memory, and how many were held at most in each phase."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class StateClass(StrEnum):
    """How long bytes live."""

    BOUNDARY = "boundary"  # from a prefix pass to its last consumer
    PERMANENT = "permanent"  # the whole run
    SNAPSHOT = "snapshot"  # from one publish to the next
    PHASE_LOCAL = "phase-local"


@dataclass(frozen=True, slots=True)
class Holding:
    """One owner's bytes of one class."""

    state_class: StateClass
    owner: str


class Ledger:
    """Mapped bytes, counted where they are mapped; a page that is mapped twice counts once, for its region."""

    def __init__(self) -> None:
        self._held: Counter[Holding] = Counter()
        self._phase = ""
        self._peaks: dict[str, int] = {}
        self._class_peaks: dict[str, Counter[StateClass]] = {}
        self.enter("start")

    def enter(self, phase: str) -> None:
        """The next bytes belong to a phase; what is held now is held in it too."""
        self._phase = phase
        self._peaks.setdefault(phase, 0)
        self._class_peaks.setdefault(phase, Counter())
        self._note()

    def add(self, holding: Holding, size: int) -> None:
        """``size`` more bytes, or fewer if it is negative."""
        self._held[holding] += size
        assert self._held[holding] >= 0, f"{holding}: gave back more than it had"
        if not self._held[holding]:
            del self._held[holding]
        self._note()

    @property
    def held(self) -> Mapping[Holding, int]:
        """Bytes now."""
        return dict(self._held)

    @property
    def total(self) -> int:
        """Bytes now, of all."""
        return sum(self._held.values())

    def by_class(self) -> dict[StateClass, int]:
        """Bytes now, by state class."""
        return dict(_classes(self._held))

    @property
    def peaks(self) -> Mapping[str, int]:
        """The most bytes held at one moment of each phase."""
        return dict(self._peaks)

    def class_peaks(self, phase: str) -> Mapping[StateClass, int]:
        """The most bytes of each class in a phase; not all at one moment."""
        return dict(self._class_peaks[phase])

    def _note(self) -> None:
        self._peaks[self._phase] = max(self._peaks[self._phase], self.total)
        peaks = self._class_peaks[self._phase]
        for state_class, size in _classes(self._held).items():
            peaks[state_class] = max(peaks[state_class], size)


def _classes(held: Mapping[Holding, int]) -> Counter[StateClass]:
    sizes: Counter[StateClass] = Counter()
    for holding, size in held.items():
        sizes[holding.state_class] += size
    return sizes
