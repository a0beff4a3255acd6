"""One operator that serves all namespaces, for all tests that need no operator of their own."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

from tests.cluster.control_plane import ControlPlane
from tests.cluster.fake_kubelet import FakeKubelet
from tests.cluster.history import History, assert_invariants, work_of
from tests.cluster.operator_process import Operator
from tests.cluster.situation import Situation

SETTLED = 40.0  # seconds after which a job of a test that is over is quiet: progress is written every 30 s
IDLE = 1.0  # seconds in the end in which nothing may be written but progress


class SharedOperator:
    """Started when it is first needed, stopped for tests that start operators: two would write to one job.

    Namespaces of situations stay, and their jobs go on: :meth:`stop` asserts that nothing was written there once the
    test was over and its last progress told.
    """

    def __init__(self, plane: ControlPlane, kubelet: FakeKubelet, history: History) -> None:
        self.plane, self._kubelet, self._history = plane, kubelet, history
        self._operator: Operator | None = None
        self._over: dict[str, float] = {}  # namespace -> when its test ended (seconds since the epoch)

    def situation(self, namespace: str) -> Situation:
        """A namespace that it serves."""
        if self._operator is None or not self._operator.program.running:
            self._operator = Operator(self.plane)
        self._operator.wait_ready()
        situation = Situation(self.plane, self._kubelet, self._history, namespace)
        situation.operators.append(self._operator)
        return situation

    def check(self, situation: Situation) -> None:
        """What must hold after every situation, at its end."""
        assert not self._kubelet.faults, self._kubelet.faults
        # when it was written last is looked at in the end
        assert_invariants(self.plane, self._history, situation.client, [], injected=situation.injected, idle=0.0)
        self._over[situation.namespace] = time.time()

    def stop(self) -> None:
        """Stop it, and look at what it wrote when nothing happened any more."""
        if self._operator is None:
            return
        time.sleep(IDLE)
        quiet = time.time()
        time.sleep(IDLE)
        operator, self._operator = self._operator, None
        assert operator.program.running, "the shared operator ended by itself"
        assert operator.program.stop() == 0
        late = [_shown(write) for write in work_of(self.plane, operator.user) if self._is_late(write, quiet)]
        assert not late, late[:5]

    def _is_late(self, write: dict[str, Any], quiet: float) -> bool:
        about, at = write["objectRef"], datetime.fromisoformat(write["requestReceivedTimestamp"]).timestamp()
        over = self._over.get(about.get("namespace", ""))
        if over is None:
            return False
        return at > over + SETTLED or (at > quiet and about.get("subresource") != "status")


def _shown(write: dict[str, Any]) -> str:
    code = write["responseStatus"]["code"]
    return f"{write['requestReceivedTimestamp']} {write['verb']} {write['requestURI']}: {code}"
