"""From creation to the end, and what stays after it: situations 8, 20, 22, 26 (``test_waits`` has 16)."""

from __future__ import annotations

import time

import pytest

from rollplex_operator.names import Phase
from tests.cluster.client import RefusedError
from tests.cluster.fake_kubelet import Fate
from tests.cluster.jobs import TARGET, on_nodes
from tests.cluster.proxy import Fault, Proxy, Request, Rule
from tests.cluster.situation import Situation


def test_case_08_finished_jobs_stay_finished(bare: Situation) -> None:
    operator = bare.start_operator()
    endings = {"complete": "Complete", "failed": "Failed"}
    for job in endings:
        bare.start(job, runPolicy={"maxRestarts": 0, "cleanPods": "none"})
    bare.complete("complete")
    bare.fail("failed-0")
    for job, ending in endings.items():
        bare.wait(job, ending)
    operator.program.kill()
    for plural in ("pods", "services", "configmaps"):
        for child in bare.client.list(plural, "rollplex.io/job"):
            bare.client.delete(plural, child["metadata"]["name"], grace=0 if plural == "pods" else None)
    bare.start_operator()
    for job in endings:
        bare.client.patch("rollplexjobs", job, {"metadata": {"labels": {"touched": "yes"}}})
    time.sleep(2.0)
    for job, ending in endings.items():
        assert bare.pod_names(job) == []
        assert bare.made(job) == 2
        assert bare.status(job)["phase"] == ending
    bare.check()


def test_case_08_a_finished_job_is_deleted_after_its_time(situation: Situation) -> None:
    situation.start(runPolicy={"ttlSecondsAfterFinished": 2})
    situation.complete()
    situation.wait("job", "Complete")
    situation.wait_for("the job is gone", lambda: situation.client.find("rollplexjobs", "job") is None, 10)
    situation.wait_for("its pods too", lambda: not situation.pods(), 20)
    assert situation.made() == 2


def test_case_20_a_refused_status_write_is_made_good_without_another_event(bare: Situation) -> None:
    proxy = bare.start_proxy()
    bare.start_operator(proxy=proxy)
    bare.start()
    for fault in (Fault.CONFLICT, Fault.SERVER_ERROR, Fault.REPLY_LOST):
        proxy.rule = first_status_write(proxy, fault)
        restarts = bare.status().get("restarts", 0)
        bare.kubelet.restart_in_place(bare.namespace, "job")
        bare.wait_restarts(restarts + 1, timeout=10)
    bare.check()


def first_status_write(proxy: Proxy, fault: Fault) -> Rule:
    before = len(proxy.injected)

    def rule(request: Request) -> Fault | None:
        is_status = request.is_write and request.path.endswith("/status")
        return fault if is_status and len(proxy.injected) == before else None

    return rule


def test_case_22_one_phase_at_a_time_through_a_whole_life(situation: Situation) -> None:
    def column() -> str:
        return situation.kubectl("get", "rpj", "job", "--no-headers").split()[1]

    situation.behave(Fate(start_seconds=0.3, terminate_seconds=0.5))
    situation.create(runPolicy={"restart": "newPods"})
    situation.wait("job", "Running")
    assert column() == "Running"
    situation.edit(runPolicy={"suspend": True})
    situation.wait("job", "Suspended")
    assert column() == "Suspended"
    assert situation.pod_names() == []
    situation.edit(runPolicy={"suspend": False})
    situation.wait("job", "Running")
    situation.fail()
    situation.wait("job", "Restarting")
    assert column() == "Restarting"
    situation.wait("job", "Running")
    situation.complete()
    situation.wait("job", "Complete")
    assert column() == "Complete"
    again = ["Starting", "Running"]
    wanted = [*again, "Suspending", "Suspended", *again, "Restarting", *again, "Complete"]
    assert [phase for phase in situation.phases() if phase != Phase.PENDING] == wanted
    status = situation.status()
    assert (status["restarts"], status["step"]) == (1, TARGET)
    [versions] = situation.history.versions(situation.namespace)
    assert all(
        len([each for each in version.get("status", {}).get("conditions", []) if each["type"] == kind]) <= 1
        for version in versions
        for kind in ("Running", "Suspended", "Complete")
    )


def test_case_26_suspended_jobs_change_their_template_with_the_same_patch(situation: Situation) -> None:
    situation.kubelet.add_nodes(f"{situation.namespace}-own", 2)
    situation.create(runPolicy={"suspend": True})
    situation.wait("job", "Suspended")
    situation.edit(runPolicy={"suspend": False}, podTemplate=on_nodes(f"{situation.namespace}-own"))
    situation.wait("job", "Running")
    assert all(pod["spec"]["nodeName"].startswith(f"{situation.namespace}-own-") for pod in situation.pods())
    with pytest.raises(RefusedError, match="suspend") as refused:
        situation.edit(podTemplate=on_nodes("node"))
    assert refused.value.code == 422
    assert situation.made() == 2


def test_suspending_saves_within_the_grace(situation: Situation) -> None:
    situation.behave(Fate(terminate_seconds=1.0))
    situation.start()
    situation.kubelet.report(situation.namespace, "job", step=4, checkpoint=4)
    situation.edit(runPolicy={"suspend": True})
    situation.wait("job", "Suspending", timeout=5)
    situation.wait("job", "Suspended")
    assert situation.condition("CheckpointSaved")["status"] == "True"
    assert situation.status()["checkpoint"]["step"] == 4
    assert situation.status()["step"] == 4
    assert situation.status().get("restarts", 0) == 0


def test_deadline_of_a_run(situation: Situation) -> None:
    situation.start(runPolicy={"activeDeadlineSeconds": 3})
    situation.wait("job", "Failed", timeout=10)
    assert situation.condition("Failed")["reason"] == "ActiveDeadlineExceeded"
    situation.wait_for("no pod runs", lambda: not situation.pods())
