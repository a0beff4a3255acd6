"""Several operators, and none: situations 23, 24."""

from __future__ import annotations

import itertools
import time
from datetime import datetime, timedelta

import pytest

from tests.cluster.operator_process import Operator
from tests.cluster.situation import Situation


def spans(situation: Situation, operators: list[Operator]) -> list[str]:
    """Whose writes follow whose, without repetition, by the API server's own clock."""
    writes = sorted(
        (write["requestReceivedTimestamp"], operator.user)
        for operator in operators
        for write in situation.plane.writes(operator.user)
        if write["objectRef"]["resource"] != "leases" and "dryRun" not in write["requestURI"]
    )
    return [user for user, _ in itertools.groupby(user for _, user in writes)]


def lease_writes(situation: Situation, operator: Operator) -> list[datetime]:
    """When the API server took an operator's writes of the lease, by its own clock."""
    return [
        datetime.fromisoformat(write["requestReceivedTimestamp"])
        for write in situation.plane.writes(operator.user)
        if write["objectRef"]["resource"] == "leases" and write["responseStatus"]["code"] < 300
    ]


def test_case_23_the_operator_is_gone_and_the_namespace_is_deleted(bare: Situation) -> None:
    operator = bare.start_operator()
    # the namespace controller looks again after half the grace of the pods that it met
    bare.start(runPolicy={"disruptionBudget": True, "terminationGraceSeconds": 2})
    operator.program.stop()
    bare.plane.client().delete("namespaces", bare.namespace)
    bare.wait_for("the namespace is gone", lambda: bare.plane.client().find("namespaces", bare.namespace) is None, 40)


def test_case_24_a_rolling_update_has_one_writer_at_a_time(bare: Situation) -> None:
    first = bare.start_operator(leader_elect=True)
    jobs = [f"job-{number}" for number in range(4)]
    for job in jobs:
        bare.create(job, runPolicy={"restart": "newPods"})
    second = bare.start_operator(leader_elect=True)
    for job in jobs:  # all of them: a pod that ends before all were created costs fewer pods
        bare.wait(job, "Running")
    for job in jobs:
        bare.kubelet.end(bare.namespace, f"{job}-0", 1)
    assert first.program.stop() == 0
    for job in jobs:
        bare.wait(job, lambda seen: seen["status"].get("attempt") == 1, "Running")
        assert bare.status(job)["restarts"] == 1
        assert bare.made(job) == 4
    assert spans(bare, [first, second]) == [first.user, second.user]
    # the lease was given back, so nobody waited for its end, 15 s after the last renewal
    waited = lease_writes(bare, second)[0] - lease_writes(bare, first)[-1]
    assert timedelta(0) < waited < timedelta(seconds=10)
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
