"""Calls in worker processes: hard time limits, deaths, buffers, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rollplex.processes import CallTimeoutError, RemoteError, SharedBuffer, WithBuffer, WorkerDiedError, WorkerPool


def nothing() -> None:
    pass


def add(a: int, b: int) -> int:
    return a + b


def ignore_everything(marker: str) -> None:
    """Refuses SIGTERM, starts a child, and swallows whatever is thrown into it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen(["sleep", "1000"])
    Path(marker).write_text(f"{os.getpid()} {child.pid}")
    while True:
        try:
            time.sleep(1000)
        except BaseException:  # noqa: BLE001
            continue


class OddError(Exception):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(first)


def fail(how: str) -> None:
    if how == "value":
        raise ValueError("no good")
    if how == "odd":
        raise OddError("one", "two")
    if how == "system-exit":
        sys.exit(3)
    if how == "os-exit":
        os._exit(7)
    os.kill(os.getpid(), signal.SIGKILL)


def squares(length: int) -> WithBuffer:
    buffer = SharedBuffer(length * 8)
    np.frombuffer(buffer.map, dtype=np.int64)[:] = np.arange(length) ** 2
    return WithBuffer({"length": length}, buffer)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(2, "test", nothing) as pool:
        yield pool


def test_submit_returns_results_in_any_number(pool: WorkerPool) -> None:
    futures = [pool.submit(add, a, 1, timeout=10) for a in range(50)]
    assert [future.result() for future in futures] == list(range(1, 51))


def test_a_call_past_its_limit_is_killed_with_its_children_and_the_pool_goes_on(
    pool: WorkerPool, tmp_path: Path
) -> None:
    marker = tmp_path / "pids"
    started = time.monotonic()
    stuck = pool.submit(ignore_everything, str(marker), timeout=1.0)
    others = [pool.submit(add, a, a, timeout=10) for a in range(10)]
    with pytest.raises(CallTimeoutError, match="no result within 1 s"):
        stuck.result(timeout=10)
    assert time.monotonic() - started < 5
    assert [future.result(timeout=10) for future in others] == [2 * a for a in range(10)]
    pids = [int(pid) for pid in marker.read_text().split()]
    deadline = time.monotonic() + 5
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(alive(pid) for pid in pids)


@pytest.mark.parametrize(
    ("how", "error", "text"),
    [
        ("value", ValueError, "^no good$"),
        ("odd", RemoteError, "OddError: one"),
        ("system-exit", RemoteError, "SystemExit: 3"),
        ("os-exit", WorkerDiedError, "exit code 7"),
        ("kill", WorkerDiedError, "exit code -9"),
    ],
)
def test_whatever_ends_a_call_fails_its_future_alone(
    pool: WorkerPool, how: str, error: type[Exception], text: str
) -> None:
    bad, good = pool.submit(fail, how, timeout=10), pool.submit(add, 1, 2, timeout=10)
    with pytest.raises(error, match=text):
        bad.result(timeout=10)
    assert good.result(timeout=10) == 3


def test_a_worker_that_dies_while_idle_is_replaced(pool: WorkerPool) -> None:
    pids = {pool.submit(os.getpid, timeout=10).result() for _ in range(20)}
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    while any(alive(pid) for pid in pids):
        time.sleep(0.01)
    assert [pool.submit(add, a, 0, timeout=10).result(timeout=20) for a in range(4)] == [0, 1, 2, 3]


def test_buffers_arrive_whole_and_leave_no_open_file_and_no_reference(pool: WorkerPool) -> None:
    before = open_files()
    for length in (1, 1000, 300_000):
        value, buffer = pool.submit(squares, length, timeout=10).result()
        assert value == {"length": length}
        np.testing.assert_array_equal(buffer.view(np.int64), np.arange(length) ** 2)
    gone = weakref.ref(buffer)
    assert open_files() <= before  # fewer: connections of killed workers are garbage by now
    del buffer
    deadline = time.monotonic() + 5
    while gone() is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert gone() is None


def test_buffers_leave_no_open_file_in_the_worker() -> None:
    with WorkerPool(1, "files", nothing) as pool:
        before = pool.submit(open_files, timeout=10).result()
        for _ in range(3):
            pool.submit(squares, 10, timeout=10).result()
        assert pool.submit(open_files, timeout=10).result() == before


def test_close_kills_running_calls_and_cancels_waiting_ones(tmp_path: Path) -> None:
    pool = WorkerPool(1, "closing", nothing)
    marker = tmp_path / "pids"
    running = pool.submit(ignore_everything, str(marker), timeout=100)
    waiting = pool.submit(add, 1, 1, timeout=100)
    while not (marker.exists() and marker.read_text()):
        time.sleep(0.01)
    pool.close()
    assert isinstance(running.exception(timeout=1), WorkerDiedError)
    assert waiting.cancelled()
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(add, 1, 1, timeout=1)


def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    marker = tmp_path / "pids"
    program = (
        "import test_processes as t, time\n"
        "pool = t.WorkerPool(1, 'orphan', t.nothing)\n"
        f"pool.submit(t.ignore_everything, {str(marker)!r}, timeout=1000)\n"
        "time.sleep(1000)\n"
    )
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    parent = subprocess.Popen([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": paths})
    deadline = time.monotonic() + 30
    while not (marker.exists() and " " in marker.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    worker, child = (int(pid) for pid in marker.read_text().split())
    parent.kill()
    parent.wait()
    while alive(worker) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not alive(worker)
    os.kill(child, signal.SIGKILL)  # the sleep that it started is nobody's to end
