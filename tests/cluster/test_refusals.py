"""The server does not take what the operator wants, or changes it: situations 6, 7 (``test_waits`` has 4 and 5)."""

from __future__ import annotations

import time
from collections import Counter

from tests.cluster.conftest import new_namespace
from tests.cluster.jobs import has_reason
from tests.cluster.operator_process import Operator
from tests.cluster.policies import changing
from tests.cluster.proxy import Fault, Request
from tests.cluster.situation import Situation

NOT_TERMINAL = (Fault.SERVER_ERROR, Fault.CONFLICT, Fault.TOO_MANY, Fault.UNAVAILABLE)
TIMES = 3


def test_case_06_an_invalid_pod_is_terminal(situation: Situation) -> None:
    situation.create(podTemplate={"spec": {"tolerations": [{"key": "not a key"}]}})
    situation.wait("job", "Failed")
    failed = situation.condition("Failed")
    assert failed["reason"] == "InvalidPod"
    assert "tolerations" in failed["message"]
    assert not situation.pods()


def test_case_06_other_refusals_are_not_terminal(bare: Situation) -> None:
    """Each fault in a namespace of its own, so that they are waited for at once."""
    situations = dict.fromkeys(NOT_TERMINAL[:1], bare)
    for fault in NOT_TERMINAL[1:]:
        situations[fault] = Situation(bare.plane, bare.kubelet, bare.history, new_namespace(bare.plane))
    faults = {situation.namespace: fault for fault, situation in situations.items()}
    injected: Counter[str] = Counter()

    def rule(request: Request) -> Fault | None:
        if request.method != "POST" or not request.path.endswith("/pods") or "dryRun" in request.query:
            return None
        namespace = request.path.split("/")[-2]
        injected[namespace] += 1
        return faults[namespace] if injected[namespace] <= TIMES else None

    proxy = bare.start_proxy()
    proxy.rule = rule
    with Operator(bare.plane, *faults, url=proxy.url) as operator:
        for situation in situations.values():
            situation.operators.append(operator)
            situation.injected = TIMES
            situation.create()
        for fault, situation in situations.items():
            situation.wait("job", "Running", timeout=60)
            assert [each for _, each in proxy.injected].count(fault) == TIMES
            assert situation.status().get("restarts", 0) == 0
            situation.check(idle=0.0)
        bare.check()


def test_case_07_changed_pods_are_not_made_again(situation: Situation) -> None:
    ranges = [
        {"type": "Container", "default": {"ephemeral-storage": "1Gi"}, "defaultRequest": {"ephemeral-storage": "1Gi"}}
    ]
    situation.client.create("limitranges", {"metadata": {"name": "range"}, "spec": {"limits": ranges}})
    with changing(situation, '[JSONPatch{op: "add", path: "/metadata/labels/site", value: "here"}]'):
        situation.start()
        pod = situation.pods()[0]
        assert pod["metadata"]["labels"]["site"] == "here"
        assert pod["spec"]["containers"][0]["resources"]["limits"]["ephemeral-storage"] == "1Gi"
        time.sleep(2.0)
        assert situation.made() == 2


def test_case_07_lost_guaranteed_qos_is_said(situation: Situation) -> None:
    path = "/spec/containers/0/resources/requests/cpu"
    with changing(situation, f'[JSONPatch{{op: "replace", path: "{path}", value: "1500m"}}]'):
        situation.start(hardware={"cpusPerRank": 2}, numa={"pinning": "container"})
        assert situation.pods()[0]["status"]["qosClass"] == "Burstable"
        situation.wait("job", has_reason("NumaAligned", "NotGuaranteed"))
        assert situation.condition("NumaAligned")["status"] == "False"
        assert situation.made() == 2


def test_objects_of_others_under_a_childs_name_are_left_alone(situation: Situation) -> None:
    """An apply would take them over, and they would go with the job."""
    mine = situation.client.create("configmaps", {"metadata": {"name": "job"}, "data": {"mine": "precious"}})
    situation.create()
    situation.wait("job", has_reason("PodsCreated", "Refused"))
    assert "ConfigMap job: this name is taken" in situation.condition("PodsCreated")["message"]
    assert not situation.pods()
    assert situation.client.get("configmaps", "job") == mine
    situation.client.delete("configmaps", "job")
    assert situation.wait("job", "Running")["status"]["restarts"] == 0
