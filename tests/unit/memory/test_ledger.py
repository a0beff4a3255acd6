"""Bytes by holder, by class, and their peaks by phase."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollplex.memory.ledger import Holding, Ledger, StateClass

HOLDINGS = [Holding(state, owner) for state in StateClass for owner in ("actor", "reference")]
changes = st.lists(
    st.tuples(st.sampled_from(HOLDINGS), st.integers(-50, 100), st.sampled_from(["", "decode", "update"])), max_size=40
)


@given(changes)
def test_sums_and_peaks_are_those_of_the_history(history: list[tuple[Holding, int, str]]) -> None:
    ledger = Ledger()
    held = dict.fromkeys(HOLDINGS, 0)
    phase = "start"
    peaks = {phase: 0}
    class_peaks = {phase: dict.fromkeys(StateClass, 0)}

    def note() -> Any:
        by_class = {state: sum(v for h, v in held.items() if h.state_class is state) for state in StateClass}
        peaks[phase] = max(peaks.get(phase, 0), sum(held.values()))
        before = class_peaks.setdefault(phase, dict.fromkeys(StateClass, 0))
        class_peaks[phase] = {state: max(before[state], size) for state, size in by_class.items()}
        return by_class

    for holding, size, then in history:
        size = max(size, -held[holding])
        held[holding] += size
        ledger.add(holding, size)
        by_class = note()
        if then:
            phase = then
            ledger.enter(phase)
            note()
        assert ledger.held == {holding: size for holding, size in held.items() if size}
        assert ledger.total == sum(held.values())
        assert {state: ledger.by_class().get(state, 0) for state in StateClass} == by_class
    assert ledger.peaks == peaks
    for name, expected in class_peaks.items():
        assert {state: ledger.class_peaks(name).get(state, 0) for state in StateClass} == expected


def test_nobody_gives_back_what_it_does_not_have() -> None:
    ledger = Ledger()
    ledger.add(HOLDINGS[0], 3)
    with pytest.raises(AssertionError, match="gave back more than it had"):
        ledger.add(HOLDINGS[0], -4)
