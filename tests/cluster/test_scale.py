"""Many pods, many jobs, many of others, and nothing to do: situations 21, 25. bench_operator measures the same."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cluster.situation import Situation

MEBIBYTE = 2**20


@pytest.mark.parametrize(("nodes", "seconds"), [(64, 15.0), pytest.param(512, 20.0, marks=pytest.mark.long)])
def test_case_25_a_job_of_many_nodes(situation: Situation, nodes: int, seconds: float) -> None:
    situation.create(nodes=nodes)
    situation.wait_for("all pods are made", lambda: situation.made() == nodes, seconds)
    situation.wait("job", "Running", timeout=90)
    assert situation.status()["nodes"] == f"{nodes}/{nodes}"
    situation.kubelet.restart_in_place(situation.namespace, "job")
    situation.wait_restarts(1, timeout=60)
    assert situation.made() == nodes


@pytest.mark.parametrize(("jobs", "seconds"), [(12, 3.0), pytest.param(100, 60.0, marks=pytest.mark.long)])
def test_case_21_nothing_is_written_when_nothing_happens(bare: Situation, jobs: int, seconds: float) -> None:
    situation, operator = bare, bare.start_operator()
    phases = ("Running", "Suspended", "Complete", "Failed", "Starting", "Pending")
    names = {f"{phases[number % len(phases)].lower()}-{number}": phases[number % len(phases)] for number in range(jobs)}
    for name, phase in names.items():
        waits = {
            "Starting": {"spec": {"nodeSelector": {"no": "where"}}},
            "Pending": {"spec": {"schedulingGates": [{"name": "a.b/c"}]}},
        }
        situation.create(
            name,
            nodes=1,
            runPolicy={"suspend": phase == "Suspended", "maxRestarts": 0, "cleanPods": "none"},
            podTemplate=waits.get(phase, {}),
        )
    for name, phase in names.items():
        if phase in ("Complete", "Failed"):
            situation.wait(name, "Running", timeout=60)
            situation.kubelet.end(situation.namespace, f"{name}-0", 0 if phase == "Complete" else 1)
    for name, phase in names.items():
        situation.wait(name, phase, timeout=60)
    time.sleep(35.0 if jobs > 50 else 3.0)  # the first progress is written
    quiet(situation, seconds)
    used = operator.share_of_core(seconds)
    # what is fixed, such as the loop that looks for due readings, weighs more in a short look
    assert used < (0.02 if seconds >= 60 else 0.06), f"{used:.1%} of a core"
    for name in names:
        job = situation.job(name)
        kept = {key: value for key, value in job["metadata"].items() if key in ("name", "namespace")}
        situation.client.apply(
            "rollplexjobs",
            {"apiVersion": job["apiVersion"], "kind": job["kind"], "metadata": kept, "spec": job["spec"]},
        )
    quiet(situation, 2.0)


def quiet(situation: Situation, seconds: float) -> None:
    before = len(situation.writes())
    time.sleep(seconds)
    assert situation.writes()[before:] == []


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_case_25_foreign_pods_cost_nothing(bare: Situation) -> None:
    operator = bare.start_operator()
    bare.start()
    before = operator.memory()
    pod = {
        "metadata": {"generateName": "foreign-"},
        "spec": {"schedulingGates": [{"name": "a.b/c"}], "containers": [{"name": "c", "image": "x"}]},
    }
    used = operator.cpu_seconds()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: bare.client.create("pods", pod), range(20_000)))
    assert operator.cpu_seconds() - used < 2.0
    assert operator.memory() - before < 5 * MEBIBYTE
    bare.fail()
    bare.wait("job", lambda job: job["status"]["restarts"] == 1, timeout=30)
