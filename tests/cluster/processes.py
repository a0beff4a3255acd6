"""Programs that a test starts: they log to a file, end with the test, and die with whoever started them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(
    what: str, condition: Callable[[], object], timeout: float = 30.0, every: float = 0.05, log: Path | None = None
) -> float:
    """Wait until ``condition()`` is true, and return the seconds that it took.

    Raises:
        TimeoutError: with the last exception of ``condition``, and the end of ``log``.
    """
    began, last = time.monotonic(), ""
    while True:
        try:
            if condition():
                return time.monotonic() - began
            last = ""
        except (OSError, AssertionError, LookupError) as error:
            last = f": {error!r}"
        if time.monotonic() - began > timeout:
            end = f"\n{tail(log)}" if log is not None else ""
            raise TimeoutError(f"{what}: not within {timeout:g} s{last}{end}")
        time.sleep(every)


def tail(log: Path, lines: int = 15) -> str:
    """The end of a log."""
    if not log.exists():
        return ""
    return "\n".join(line[:500] for line in log.read_text(errors="replace").splitlines()[-lines:])


class Program:
    """A process with its log. It gets SIGKILL when the thread that started it ends, however that happens."""

    def __init__(
        self, name: str, command: Sequence[str | Path], folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [str(part) for part in command],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=folder,
                env={**os.environ, **(environment or {})},
                preexec_fn=_die_with_parent,
            )

    @property
    def running(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def ready(self, condition: Callable[[], object], timeout: float = 30.0) -> None:
        """Wait for its readiness; fails at once if it ended."""

        def is_ready() -> bool:
            if not self.running:
                raise RuntimeError(f"{self.name} ended with {self.process.returncode}:\n{tail(self.log)}")
            return bool(condition())

        wait_for(f"{self.name} is ready", is_ready, timeout, log=self.log)

    def kill(self) -> None:
        """As kill -9 does it."""
        self.process.kill()
        self.process.wait()

    def stop(self, timeout: float = 10.0) -> int:
        """SIGTERM, then SIGKILL; its exit status."""
        if self.running:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self.process.wait(timeout)
            self.kill()
        return self.process.returncode

    def freeze(self) -> None:
        """Stop it where it is, as a machine that hangs would."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)


def _die_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
