"""Several operators, and none: situations 23, 24."""

from __future__ import annotations

import itertools
import time

import pytest

from tests.cluster.operator_process import Operator
from tests.cluster.situation import Situation

pytestmark = pytest.mark.unproven


def spans(situation: Situation, operators: list[Operator]) -> list[str]:
    """Whose writes follow whose, without repetition, by the API server's own clock."""
    writes = sorted(
        (write["requestReceivedTimestamp"], operator.user)
        for operator in operators
        for write in situation.plane.writes(operator.user)
        if write["objectRef"]["resource"] != "leases" and "dryRun" not in write["requestURI"]
    )
    return [user for user, _ in itertools.groupby(user for _, user in writes)]


def test_case_23_the_operator_is_gone_and_the_namespace_is_deleted(bare: Situation) -> None:
    operator = bare.start_operator()
    bare.start(runPolicy={"disruptionBudget": True})
    operator.program.stop()
    bare.plane.client().delete("namespaces", bare.namespace)
    bare.wait_for("the namespace is gone", lambda: bare.plane.client().find("namespaces", bare.namespace) is None, 40)


def test_case_24_a_rolling_update_has_one_writer_at_a_time(bare: Situation) -> None:
    first = bare.start_operator(leader_elect=True)
    for number in range(4):
        bare.create(f"job-{number}", runPolicy={"restart": "newPods"})
    second = bare.start_operator(leader_elect=True)
    bare.wait("job-3", "Running")
    for number in range(4):
        bare.kubelet.end(bare.namespace, f"job-{number}-0", 1)
    assert first.program.stop() == 0
    for number in range(4):
        # the lease was given back, so nobody waits for its end
        bare.wait(f"job-{number}", lambda job: job["status"].get("attempt") == 1, "Running", timeout=10)
        assert bare.status(f"job-{number}")["restarts"] == 1
        assert bare.made(f"job-{number}") == 4
    assert spans(bare, [first, second]) == [first.user, second.user]
    bare.check()


@pytest.mark.long
def test_case_24_a_leader_that_hung_does_not_write_when_it_wakes(bare: Situation) -> None:
    first = bare.start_operator(leader_elect=True)
    bare.start(runPolicy={"restart": "newPods"})
    second = bare.start_operator(leader_elect=True)
    first.program.freeze()
    bare.fail()
    bare.wait_attempt(1, timeout=40)
    first.program.thaw()
    bare.fail()
    bare.wait_attempt(2, timeout=20)
    bare.wait_for("the first one ends", lambda: not first.program.running, 20)
    assert spans(bare, [first, second]) == [first.user, second.user]
    assert bare.made() == 6
    time.sleep(1.0)
    bare.check()
