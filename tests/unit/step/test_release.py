"""What a step holds is gone when the step is, without waiting for Python's search for circles."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from tests.unit.step.test_executor import Bench, FaultError, fault


@pytest.fixture
def no_search() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_search")
@pytest.mark.parametrize("mode", ["serial", "overlap", "stream"])
def test_nothing_of_a_finished_step_stays(mode: str) -> None:
    bench = Bench(mode=mode)
    bench.run()
    executor, compute = weakref.ref(bench.executor), weakref.ref(bench.compute)
    del bench
    assert executor() is None
    assert compute() is None


@pytest.mark.usefixtures("no_search")
def test_nothing_of_a_failed_step_stays() -> None:
    bench = Bench(before_run=fault)
    with pytest.raises(FaultError) as caught:
        bench.run()
    executor = weakref.ref(bench.executor)
    del bench, caught
    assert executor() is None
