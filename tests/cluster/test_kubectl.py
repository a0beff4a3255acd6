"""kubectl as a person would use it, and what it says."""

from __future__ import annotations

import re
import threading

import pytest
import yaml

from tests.cluster.client import RefusedError
from tests.cluster.jobs import TARGET, make_job
from tests.cluster.situation import Situation


def test_kubectl_applies_shows_waits_and_deletes(situation: Situation) -> None:
    kubectl = situation.kubectl
    manifest = yaml.safe_dump(make_job())
    assert kubectl("apply", "-f", "-", stdin=manifest) == "rollplexjob.rollplex.io/job created\n"
    situation.wait("job", "Running")
    before = situation.job()["metadata"]
    # kubectl says "configured", since the server filled defaults into lists; nothing was
    assert kubectl("apply", "-f", "-", stdin=manifest) == "rollplexjob.rollplex.io/job configured\n"
    after = situation.job()["metadata"]
    assert (after["resourceVersion"], after["generation"]) == (before["resourceVersion"], before["generation"])

    head, row = kubectl("get", "rpj").splitlines()
    assert head.split() == ["NAME", "PHASE", "STEP", "NODES", "RESTARTS", "SAVED%", "AGE"]
    assert row.split()[:2] == ["job", "Running"]
    assert "2/2" in row
    assert "rollplexjob.rollplex.io/job" in kubectl("get", "all")
    assert re.search(r"^spec\s+<JobSpec>|^\s+spec\s+<Object>", kubectl("explain", "rpj"), re.MULTILINE)

    described = kubectl("describe", "rpj", "job")
    for kind in ("Admitted", "PodsCreated", "Running"):
        assert re.search(rf"Type:\s+{kind}\b", described), kind
    assert re.search(r"Phase:\s+Running", described)
    assert "AllRunning" in described

    waited: list[str] = []
    wait = threading.Thread(
        target=lambda: waited.append(kubectl("wait", "--for=condition=Complete", "--timeout=30s", "rpj/job"))
    )
    wait.start()
    situation.complete()
    wait.join()
    assert waited == ["rollplexjob.rollplex.io/job condition met\n"]
    assert kubectl("get", "rpj", "job", "-o", "jsonpath={.status.phase} {.status.step}") == f"Complete {TARGET}"
    assert kubectl("delete", "rpj", "job", "--timeout=30s").startswith('rollplexjob.rollplex.io "job" deleted')
    with pytest.raises(RefusedError, match='"job" not found'):
        kubectl("get", "rpj", "job")
    children = ("get", "pods,services,configmaps", "-l", "rollplex.io/job=job", "-o", "name")
    situation.wait_for("its children are gone", lambda: kubectl(*children) == "", 20)


def test_kubectl_says_what_is_wrong_with_a_job(situation: Situation) -> None:
    job = make_job()
    job["spec"]["nodes"] = 0
    job["spec"]["schedule"] = {"mode": "fast"}
    with pytest.raises(RefusedError) as refused:
        situation.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(job))
    assert "spec.nodes" in refused.value.message
    assert 'supported values: "serial", "overlap", "stream"' in refused.value.message


def test_kubectl_warns_of_a_field_that_does_not_exist(situation: Situation) -> None:
    job = make_job()
    job["spec"]["shedule"] = {"mode": "serial"}
    with pytest.raises(RefusedError, match="unknown field"):
        situation.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(job))


def test_describe_shows_why_a_job_failed(situation: Situation) -> None:
    situation.start(runPolicy={"maxRestarts": 0})
    situation.fail("job-1", 9, "RuntimeError: CUDA error: out of memory")
    situation.wait("job", "Failed")
    described = situation.kubectl("describe", "rpj", "job")
    assert "RestartsExhausted" in described
    assert "out of memory" in described
    assert re.search(r"^\s+Warning\s+RestartsExhausted", described, re.MULTILINE)
