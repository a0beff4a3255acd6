"""The operator as it is installed: a process of its own, against the API server or a proxy before it."""

from __future__ import annotations

import itertools
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.cluster.control_plane import ControlPlane
from tests.cluster.processes import Program, free_port

_numbers = itertools.count()


class Operator:
    """Started on construction; ``with`` waits until it is ready, and stops it at the end.

    Args:
        namespaces: those that it watches; none: the whole cluster.
        url: of a proxy; by default the API server itself.
        user: its user at the API server, by default one of its own: its writes are told apart by it.
        arguments: more of its command line.
        leader_elect: whether it waits for the lease; one that was killed would make its successor wait for 15 s.
    """

    def __init__(
        self,
        plane: ControlPlane,
        *namespaces: str,
        url: str | None = None,
        user: str | None = None,
        arguments: tuple[str, ...] = (),
        leader_elect: bool = False,
    ) -> None:
        number = next(_numbers)
        self.user = user or f"operator-{number % len(plane.operators)}"
        self.port = free_port()
        home = namespaces[0] if namespaces else "default"
        command = [
            *(sys.executable, "-m", "rollplex_operator.main"),
            *("--kubeconfig", str(plane.kubeconfig(self.user, url or plane.url, home))),
            *(part for namespace in namespaces for part in ("--namespace", namespace)),
            *("--lease-namespace", home, "--port", str(self.port)),
            *(() if leader_elect else ("--no-leader-elect",)),
            *arguments,
        ]
        self.program = Program(f"operator-{number}", command, plane.folder)

    def __enter__(self) -> Operator:
        try:
            self.wait_ready()
        except BaseException:
            self.program.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.program.stop()

    def wait_ready(self, timeout: float = 30.0) -> None:
        """Until its first lists are in."""
        self.program.ready(lambda: self.answers("/readyz"), timeout)

    def answers(self, path: str) -> bool:
        """Whether /readyz or /healthz says yes; False too where nobody listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError):
            return False

    def metrics(self) -> str:
        """What Prometheus would read."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
            return str(answer.read().decode())

    def is_idle(self) -> bool:
        """Whether it works on no job, and none is due: what it wrote last has all been written."""
        return "rollplex_operator_queue_oldest_seconds 0.0\n" in self.metrics()

    def cpu_seconds(self) -> float:
        """CPU time that it used until now."""
        fields = Path(f"/proc/{self.program.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100  # USER_HZ

    def memory(self) -> int:
        """Resident bytes."""
        return int(Path(f"/proc/{self.program.process.pid}/statm").read_text().split()[1]) * 4096

    def share_of_core(self, seconds: float) -> float:
        """Fraction of a core that it uses over the next ``seconds``."""
        before = self.cpu_seconds()
        time.sleep(seconds)
        return (self.cpu_seconds() - before) / seconds
