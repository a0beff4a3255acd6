"""Names, and jobs that have had theirs before: situations 1, 2, 3."""

from __future__ import annotations

import pytest

from rollplex_operator import names
from tests.cluster.client import RefusedError
from tests.cluster.conftest import new_namespace
from tests.cluster.fake_kubelet import Fate
from tests.cluster.jobs import make_job
from tests.cluster.shared import SharedOperator
from tests.cluster.situation import Situation

LONGEST = 50


def test_case_01_names_of_every_length_are_accepted_or_refused_with_the_limit(bare: Situation) -> None:
    for nodes in (1, 10, 100, 1000):
        for length in range(1, 64):
            job = make_job("n" * length, nodes)
            if length <= LONGEST:
                bare.client.create("rollplexjobs", job, dryRun="All")
                continue
            with pytest.raises(RefusedError, match=f"up to {LONGEST}|may not be more than {LONGEST}") as refused:
                bare.client.create("rollplexjobs", job, dryRun="All")
            assert refused.value.code == 422


@pytest.mark.parametrize(
    "nodes", [1, 10, pytest.param(100, marks=pytest.mark.long), pytest.param(1000, marks=pytest.mark.long)]
)
def test_case_01_every_child_of_the_longest_name_is_made(situation: Situation, nodes: int) -> None:
    name = "n" * LONGEST
    situation.create(name, nodes, runPolicy={"disruptionBudget": True})
    situation.wait(name, "Running", timeout=30 + nodes / 10)
    assert set(situation.pod_names(name)) == {f"{name}-{index}" for index in range(nodes)}
    for plural in ("services", "configmaps", "poddisruptionbudgets"):
        assert situation.client.find(plural, name) is not None
    hosts = {(pod["spec"]["hostname"], pod["spec"]["subdomain"]) for pod in situation.pods(name)}
    assert hosts == {(f"{name}-{index}", name) for index in range(nodes)}


def test_case_02_jobs_of_one_name_in_two_namespaces(situation: Situation, shared: SharedOperator) -> None:
    other = shared.situation(new_namespace(situation.plane))
    situation.create()
    other.create()
    situation.wait("job", "Running")
    other.wait("job", "Running")
    before = other.pods()
    situation.client.delete("rollplexjobs", "job")
    situation.wait_for("the first job's pods are gone", lambda: not situation.pods())
    assert other.pods() == before
    assert other.status()["phase"] == "Running"
    shared.check(other)


@pytest.mark.parametrize("times", [4, pytest.param(20, marks=pytest.mark.long)])
def test_case_03_deleted_and_created_again_while_pods_terminate(situation: Situation, times: int) -> None:
    situation.behave(Fate(terminate_seconds=1.0))
    situation.start()
    for _ in range(times):
        old = {pod["metadata"]["uid"] for pod in situation.pods()}
        situation.client.delete("rollplexjobs", "job")
        uid = situation.create()["metadata"]["uid"]
        situation.wait("job", "Running")
        new = situation.pods()
        assert [pod["metadata"]["labels"][names.LABEL_UID] for pod in new] == [uid, uid]
        assert old.isdisjoint(pod["metadata"]["uid"] for pod in new)
        status = situation.status()
        assert (status["attempt"], status.get("restarts", 0)) == (0, 0)
    assert situation.made() == 2 * (times + 1)
