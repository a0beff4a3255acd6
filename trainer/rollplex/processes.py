"""Worker processes whose calls have a hard time limit: decoders that block, rewards that never return.

One thread per worker owns that worker's process and socket, so nothing is shared that a killed process could leave
locked. A call past its limit is killed with its whole process group by SIGKILL, which code that blocks in C or catches
every exception cannot refuse; a fresh process takes its place. Workers are new interpreters, not forks: they are safe
to start while the parent has threads and a GPU, and they import only what their function needs.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import pickle
import queue
import signal
import socket
import subprocess
import sys
import threading
import traceback
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

_START_LIMIT = 120.0  # seconds until a new worker must be prepared
_PARENT_DEATH = 1  # prctl's PR_SET_PDEATHSIG


class CallTimeoutError(Exception):
    """The call did not return within its limit and was killed."""


class WorkerDiedError(Exception):
    """The worker ended during the call: a crash in C, an ``os._exit``, or the kernel short of memory."""


class RemoteError(Exception):
    """An exception of a class that the parent may not know; the text is its last traceback line."""


class SharedBuffer:
    """Memory that a worker fills and hands to the parent without pickling.

    ``map`` is a writable :class:`mmap.mmap` of ``size`` bytes (at least 1). It has no name, so a kill leaves nothing.
    """

    def __init__(self, size: int) -> None:
        self.fd = os.memfd_create("rollplex")
        os.truncate(self.fd, size)
        self.map = mmap.mmap(self.fd, size)


@dataclass(frozen=True)
class WithBuffer:
    """What a call returns to hand over a buffer too; its future's result is ``(value, bytes as a uint8 array)``."""

    value: Any
    buffer: SharedBuffer


@dataclass(frozen=True)
class _Call:
    future: Future[Any]
    message: bytes
    timeout: float


class WorkerPool:
    """Runs picklable functions in ``workers`` processes, each call under its own time limit.

    ``prepare`` is called in every new worker before its first call and outside any call's limit: imports that take long
    belong there. What it raises is ignored, since the calls that need it will raise it again. Close the pool, or use it
    as a context manager; workers also end when the parent does, however it ends.
    """

    def __init__(self, workers: int, name: str, prepare: Callable[[], object]) -> None:
        if workers < 1:
            raise ValueError(f"workers is {workers}; at least 1 is needed")
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._workers = [_Worker(self._calls, pickle.dumps(prepare)) for _ in range(workers)]
        self._threads = [
            threading.Thread(target=worker.serve, name=f"{name}-{number}", daemon=True)
            for number, worker in enumerate(self._workers)
        ]
        # also runs when the interpreter exits
        self._finalizer = weakref.finalize(self, _stop, self._calls, self._workers)
        for thread in self._threads:
            thread.start()

    def submit(self, function: Callable[..., Any], *args: Any, timeout: float) -> Future[Any]:
        """Call ``function(*args)`` in a worker within ``timeout`` seconds, counted from when it starts to run.

        The future fails with :class:`CallTimeoutError`, :class:`WorkerDiedError`, or what the function raised.
        """
        future: Future[Any] = Future()
        if not self._finalizer.alive:
            raise RuntimeError("the worker pool is closed")
        self._calls.put(_Call(future, pickle.dumps((function, args)), timeout))
        return future

    def close(self) -> None:
        """Kill the workers; calls that have not finished fail with :class:`WorkerDiedError` or are cancelled."""
        self._finalizer()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _stop(calls: queue.SimpleQueue[_Call | None], workers: list[_Worker]) -> None:
    for worker in workers:
        worker.closed = True
    while True:
        try:
            call = calls.get_nowait()
        except queue.Empty:
            break
        if call is not None:
            call.future.cancel()
    for worker in workers:
        calls.put(None)
        worker.kill()


class _Worker:
    """One process and its socket, used by one thread; ``kill`` and ``closed`` by any."""

    def __init__(self, calls: queue.SimpleQueue[_Call | None], prepare: bytes) -> None:
        self._calls = calls
        self._prepare = prepare
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._lock = threading.Lock()  # a process is started or killed, never both at once
        self.closed = False

    def serve(self) -> None:
        self._start()
        while (call := self._calls.get()) is not None:
            self._answer(call)
            del call  # its future holds the result: an idle worker must not keep it alive

    def _answer(self, call: _Call) -> None:
        if not call.future.set_running_or_notify_cancel():
            return
        try:
            if self._process is None or self._process.poll() is not None:
                self._start()  # it died while idle
            result = self._run(call)
        except Exception as error:  # noqa: BLE001 (the caller of the future gets it)
            call.future.set_exception(error)
        else:
            call.future.set_result(result)

    def _run(self, call: _Call) -> Any:
        connection = self._connection
        if connection is None:
            raise WorkerDiedError("the worker process did not start")
        try:
            connection.send_bytes(call.message)
            if not connection.poll(call.timeout):
                self.kill()
                self._start()
                raise CallTimeoutError(f"no result within {call.timeout:g} s")
            succeeded, value, size = _loads(connection.recv_bytes())
            if size:
                with socket.socket(fileno=os.dup(connection.fileno())) as channel:
                    _, (fd,), _, _ = socket.recv_fds(channel, 1, 1)
                value = (value, _take(fd, size))
        except (EOFError, OSError):
            code = self.kill()
            self._start()
            raise WorkerDiedError(f"the worker process ended during the call (exit code {code})") from None
        if not succeeded:
            raise value
        return value

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with self._lock, theirs:
            if self.closed:
                ours.close()
                self._process = self._connection = None
                return
            paths = os.pathsep.join(path for path in sys.path if path)
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    f"from rollplex.processes import _work; _work({theirs.fileno()}, {os.getpid()})",
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=2,  # what a user's function prints must not tear the parent's own output
                start_new_session=True,  # a group of its own to kill; Ctrl-C reaches the parent alone
                env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            )
            self._connection = Connection(ours.detach())
        try:
            self._connection.send_bytes(self._prepare)
            if not self._connection.poll(_START_LIMIT):
                raise EOFError
            self._connection.recv_bytes()
        except (EOFError, OSError):
            self.kill()
            self._process = self._connection = None

    def kill(self) -> int | None:
        """End the process and all it has started; returns its exit code."""
        with self._lock:
            if self._process is None:
                return None
            if self._process.returncode is None:  # once reaped, its number may be someone else's
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
            return self._process.wait()


def _take(fd: int, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Copy a worker's buffer out and close it: a mapping would keep one open file a buffer, and hundreds are held."""
    taken = np.empty(size, dtype=np.uint8)
    at = 0
    try:
        while at < size:
            at += os.preadv(fd, [taken[at:].data], at)
    finally:
        os.close(fd)
    return taken


def _work(fd: int, parent: int) -> None:
    """A worker's life: read a call, run it, answer; until the parent hangs up."""
    ctypes.CDLL(None).prctl(_PARENT_DEATH, signal.SIGKILL)  # also when it is busy in a call that never returns
    if os.getppid() != parent:
        return  # the parent ended before prctl took effect
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = Connection(fd)
    with contextlib.suppress(Exception, SystemExit):
        pickle.loads(connection.recv_bytes())()
    connection.send_bytes(b"ready")
    while True:
        try:
            message = connection.recv_bytes()
        except (EOFError, OSError):
            return
        value: Any = None
        buffer: SharedBuffer | None = None
        try:
            function, args = pickle.loads(message)
            value = function(*args)
            if isinstance(value, WithBuffer):
                value, buffer = value.value, value.buffer
            answer = pickle.dumps((True, value, buffer.map.size() if buffer else 0))
        except BaseException as error:  # noqa: BLE001 (a user's sys.exit must not end the worker)
            answer = _failure(error)
            buffer = None
        connection.send_bytes(answer)
        if buffer is not None:
            with socket.socket(fileno=os.dup(fd)) as channel:
                socket.send_fds(channel, [b"b"], [buffer.fd])
            os.close(buffer.fd)
        del value, buffer  # an idle worker must not keep what it has handed over


def _failure(error: BaseException) -> bytes:
    """The error itself where the parent surely knows its class, else its text."""
    if isinstance(error, Exception) and type(error).__module__.partition(".")[0] in ("builtins", "rollplex"):
        with contextlib.suppress(Exception):
            return pickle.dumps((False, error, 0))
    return pickle.dumps((False, RemoteError(traceback.format_exception_only(error)[-1].strip()), 0))


def _loads(answer: bytes) -> tuple[bool, Any, int]:
    try:
        succeeded, value, size = pickle.loads(answer)
    except Exception as error:  # noqa: BLE001 (an argument of the error may be of a class that only the worker knows)
        return False, RemoteError(f"its result cannot be read: {type(error).__name__}: {error}"), 0
    return succeeded, value, size
