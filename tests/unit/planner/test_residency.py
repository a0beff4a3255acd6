"""Terms of the plan: they follow the batch, the layout and the job's choices."""

from dataclasses import replace
from typing import Any

import pytest

from rollplex.planner.cost import Cost
from rollplex.planner.residency import Choices, bytes_of, naive, residency
from tests.unit.planner.workloads import hardware, workload

GiB = 1 << 30


def plan(mode: str = "stream", budget: int = 80 * GiB, choices: Any = None, **changes: Any) -> Any:
    work = workload(**changes)
    return residency(work, Cost(work, hardware()), hardware(), mode, budget, choices)


def by_name(found: Any) -> Any:
    return {group.name: group for group in found.tensors}


@pytest.mark.parametrize("mode", ["serial", "overlap", "stream"])
def test_the_engines_cache_is_gone_before_the_update_and_gradients_after_it(mode: str) -> None:
    found = plan(mode)
    groups = by_name(found)
    update = found.phases.index("update")
    assert groups["engine KV"].last < update
    assert groups["gradients"].last == update == len(found.phases) - 2
    assert groups["suffix activations"].last < update


def test_in_serial_no_boundary_lives_under_decode_in_the_others_the_actors_does() -> None:
    assert by_name(plan("serial"))["actor boundary KV"].first > 0
    for mode in ("overlap", "stream"):
        assert by_name(plan(mode))["actor boundary KV"].first == 0


def test_a_frozen_tower_keeps_no_activations_and_no_reference_no_weights() -> None:
    assert "tower activations" not in by_name(plan(trained_tower=False))
    names = by_name(plan(reference=False))
    assert not [name for name in names if name.startswith("reference")]
    assert not [name for name in naive(workload(reference=False)) if name.startswith("reference")]


def test_a_smaller_budget_moves_things_out_until_it_fits() -> None:
    rich = plan()
    assert rich.choices["optimizer"] == "hbm"
    assert rich.seconds == 0
    poor = plan(budget=int(rich.peak * 0.6), choices=Choices(run_ahead={16: 0.0, 4: 0.1, 1: 0.5}))
    assert poor.fits
    assert poor.seconds > 0
    assert poor.peak < rich.peak


@pytest.mark.parametrize("activations", ["keep", "offload", "recompute"])
@pytest.mark.parametrize("optimizer", ["hbm", "host"])
def test_the_jobs_own_choices_hold(activations: str, optimizer: str) -> None:
    found = plan(choices=Choices(activations, optimizer))
    assert found.choices["activations"].startswith(activations)
    assert found.choices["optimizer"] == optimizer


def test_bytes_follow_the_layout() -> None:
    one, two = bytes_of(workload(train_tensor=2)), bytes_of(workload(train_tensor=4))
    assert one.weights == pytest.approx(2 * two.weights, rel=1e-4)
    assert one.boundary_of_group == 2 * two.boundary_of_group
    assert bytes_of(replace(workload(), item_bytes=4)).weights == 2 * two.weights
    # what tensor parallelism does not cut stays whole
    assert one.activations_of_group < 2 * two.activations_of_group
