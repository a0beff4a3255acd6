"""One fault at every request of create -> Running -> restart -> Complete: situations 18, 19."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pytest

from tests.cluster.conftest import delete_namespace, make_namespace
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fake_kubelet import FakeKubelet
from tests.cluster.history import History
from tests.cluster.proxy import Fault, Request
from tests.cluster.shared import SharedOperator
from tests.cluster.sweep import End, Lane, Run, Strike, sweep

FAULTS = (Fault.SERVER_ERROR, Fault.CONFLICT, Fault.TOO_MANY, Fault.UNAVAILABLE, Fault.REPLY_LOST)
LANES = 3
JOINED = 2  # statuses that may be one with the next: in either attempt "all are created" and "all run"


@dataclass(frozen=True, slots=True)
class Undisturbed:
    """How a job ends without a fault, and how many requests of its it takes to sweep."""

    end: End
    n: int


@pytest.fixture(scope="module")
def lanes(plane: ControlPlane, kubelet: FakeKubelet, history: History, shared: SharedOperator) -> Iterator[list[Lane]]:
    shared.stop()
    names = [f"sweep-{number}" for number in range(LANES)]
    for name in names:
        make_namespace(plane, name)
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Lane(plane, kubelet, history, name)) for name in names]
    for name in names:
        delete_namespace(plane, name)


@pytest.fixture(scope="module")
def undisturbed(lanes: list[Lane]) -> Undisturbed:
    runs = without_faults(lanes, Strike(0))
    end = runs[0].end
    assert end["phase"] == "Complete"
    assert end["restarts"] == 1
    assert all(run.end == end for run in runs), "it ends the same way every time"
    return Undisturbed(end, max(len(run.requests) for run in runs))


@pytest.fixture(scope="module")
def starting(lanes: list[Lane], undisturbed: Undisturbed) -> Undisturbed:
    """Of an operator that starts: all until its first write. After that it goes on as in ``undisturbed``."""
    runs = without_faults(lanes, Strike(0, starting=True))
    assert all(run.end == undisturbed.end for run in runs)
    firsts = [next(n for n, each in enumerate(run.requests, 1) if is_real_write(each)) for run in runs]
    return Undisturbed(undisturbed.end, max(firsts))


def without_faults(lanes: list[Lane], strike: Strike) -> list[Run]:
    runs = sweep(lanes, [strike] * LANES)
    assert not any(run.failure for run in runs), [run.failure for run in runs]
    return runs


def is_real_write(request: Request) -> bool:
    return request.is_write and "dryRun" not in request.query


def assert_same_end(
    lanes: list[Lane], undisturbed: Undisturbed, strikes: Iterable[Strike], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each job ends as if nothing had happened to it; and something did."""
    runs = sweep(lanes, strikes, undisturbed.end)
    with capsys.disabled():
        print(f"\nn = {undisturbed.n} requests; {sum(run.struck for run in runs)} of {len(runs)} faults struck")
    failures = [f"{run}: {run.failure}" for run in runs if run.failure]
    assert not failures, "\n".join(failures)
    assert all(run.end == undisturbed.end for run in runs)
    missed = [str(run) for run in runs if not run.struck and run.strike.k <= undisturbed.n - JOINED]
    assert not missed, missed


def spread(n: int, count: int, offset: int = 0) -> list[int]:
    """``count`` of 1..n, evenly."""
    return sorted({1 + (offset + index * n // count) % n for index in range(count)})


def test_case_18_a_request_fails(
    lanes: list[Lane], undisturbed: Undisturbed, capsys: pytest.CaptureFixture[str]
) -> None:
    n = undisturbed.n
    strikes = [Strike(k, fault) for offset, fault in enumerate(FAULTS) for k in spread(n, 2, offset * n // 10)]
    assert_same_end(lanes, undisturbed, strikes, capsys)


def test_case_19_the_operator_is_killed(
    lanes: list[Lane], undisturbed: Undisturbed, capsys: pytest.CaptureFixture[str]
) -> None:
    assert_same_end(lanes, undisturbed, [Strike(k) for k in spread(undisturbed.n, 3)], capsys)


def test_case_18_and_19_while_the_operator_starts(
    lanes: list[Lane], undisturbed: Undisturbed, capsys: pytest.CaptureFixture[str]
) -> None:
    strikes = [Strike(3, Fault.UNAVAILABLE, True), Strike(12, None, True), Strike(21, Fault.REPLY_LOST, True)]
    assert_same_end(lanes, undisturbed, strikes, capsys)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("fault", [*FAULTS, None], ids=lambda fault: fault.name if fault else "KILL")
def test_case_18_and_19_at_every_request(
    lanes: list[Lane], undisturbed: Undisturbed, fault: Fault | None, capsys: pytest.CaptureFixture[str]
) -> None:
    strikes = [Strike(k, fault) for k in range(1, undisturbed.n + 1)]
    assert_same_end(lanes, undisturbed, strikes, capsys)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("fault", [*FAULTS, None], ids=lambda fault: fault.name if fault else "KILL")
def test_case_18_and_19_at_every_request_while_the_operator_starts(
    lanes: list[Lane], starting: Undisturbed, fault: Fault | None, capsys: pytest.CaptureFixture[str]
) -> None:
    strikes = [Strike(k, fault, starting=True) for k in range(1, starting.n + 1)]
    assert_same_end(lanes, starting, strikes, capsys)
