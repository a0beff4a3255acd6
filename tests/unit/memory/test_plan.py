"""The residency plan: least cost under the budget, and a layout in which nothing alive overlaps."""

from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollplex.memory.ledger import StateClass
from rollplex.memory.plan import Option, Tensors, plan

PHASES = ("decode", "actor", "update")


def tensors(name: str, size: int, first: int = 0, last: int = 2) -> Tensors:
    return Tensors(name, StateClass.PHASE_LOCAL, size, first, last)


@st.composite
def groups(draw: Any, name: str = "t") -> Any:
    first = draw(st.integers(0, 2))
    return tensors(f"{name}{draw(st.integers(0, 10**6))}", draw(st.integers(1, 50)), first, draw(st.integers(first, 2)))


options = st.lists(
    st.builds(
        Option, st.sampled_from(["keep", "offload", "recompute"]), st.tuples(groups()), st.floats(0, 5, allow_nan=False)
    ),
    min_size=1,
    max_size=3,
)


@given(
    st.lists(groups("f"), max_size=6, unique_by=lambda t: t.name), st.lists(options, max_size=3), st.integers(0, 200)
)
def test_plan_is_the_cheapest_that_fits_or_the_smallest(fixed: Any, choices: Any, budget: int) -> None:
    decisions = {f"d{index}": given for index, given in enumerate(choices)}
    found = plan(PHASES, fixed, decisions, budget)
    ways = []
    for chosen in product(*choices):
        alive = [*fixed, *(t for option in chosen for t in option.tensors)]
        peak = max(sum(t.size for t in alive if t.first <= phase <= t.last) for phase in range(3))
        ways.append((peak, sum(option.seconds for option in chosen)))
    fitting = [way for way in ways if way[0] <= budget]
    assert found.fits == bool(fitting)
    if fitting:
        assert found.seconds == min(seconds for _, seconds in fitting)
    else:
        assert found.peak == min(peak for peak, _ in ways)


@given(st.lists(groups(), max_size=12, unique_by=lambda t: t.name))
def test_layout_never_overlaps_what_lives_together(fixed: Any) -> None:
    found = plan(PHASES, fixed, {}, 0)
    for one, other in combinations(fixed, 2):
        if one.meets(other):
            at, then = found.offsets[one], found.offsets[other]
            assert at + one.size <= then or then + other.size <= at
    assert found.span >= found.peak


def test_what_lives_in_different_phases_shares_addresses() -> None:
    found = plan(PHASES, [tensors("weights", 10), tensors("kv", 30, 0, 0), tensors("gradients", 20, 1, 2)], {}, 40)
    assert found.peaks == (40, 30, 30)
    assert found.span == 40
    assert found.offsets[tensors("gradients", 20, 1, 2)] == found.offsets[tensors("kv", 30, 0, 0)] == 10


def test_a_dearer_option_is_taken_only_when_the_budget_asks_for_it() -> None:
    keep = Option("keep", (tensors("activations", 50, 1, 1),))
    recompute = Option("recompute", (tensors("inputs", 5, 1, 1),), seconds=2.0)
    for budget, wanted in ((60, "keep"), (59, "recompute"), (3, "recompute")):
        found = plan(PHASES, [tensors("weights", 10)], {"activations": (keep, recompute)}, budget)
        assert found.choices == {"activations": wanted}
    assert not found.fits


@pytest.mark.parametrize(
    ("fixed", "decisions", "says"),
    [([tensors("late", 1, 2, 3)], {}, "late: 1 bytes in phases 2 to 3"), ([], {"activations": ()}, "activations")],
)
def test_nonsense_is_refused(fixed: Any, decisions: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        plan(PHASES, fixed, decisions, 1)
