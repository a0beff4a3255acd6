"""The server does not take what the operator wants, or changes it: situations 4, 5, 6, 7."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.client import Object
from tests.cluster.jobs import has_reason
from tests.cluster.proxy import ANSWERS, Fault, Request
from tests.cluster.situation import Situation


def quota(situation: Situation, pods: int) -> None:
    situation.client.apply(
        "resourcequotas",
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "few"},
            "spec": {"hard": {"pods": str(pods)}},
        },
    )


def test_case_04_quota_for_three_of_four_pods(situation: Situation) -> None:
    quota(situation, 3)
    situation.wait_for(
        "the quota counts", lambda: situation.client.get("resourcequotas", "few").get("status", {}).get("hard")
    )
    situation.create(nodes=4)
    job = situation.wait("job", has_reason("PodsCreated", "QuotaExceeded"))
    assert "exceeded quota: few" in situation.condition("PodsCreated")["message"]
    assert job["status"]["phase"] == "Pending"
    situation.wait_for("no part of the gang holds GPUs", lambda: not situation.pods())
    began = time.time()
    time.sleep(8.0)
    tries = [at for pod in situation.history.pods_of(situation.namespace) if (at := created(pod)) > began]
    assert len(tries) <= 3 * 4, "the waits between tries grow"
    made = situation.made()
    quota(situation, 4)
    situation.wait("job", "Running", timeout=60)
    assert situation.status().get("restarts", 0) == 0
    situation.injected = (made + 3) // 4  # each try made up to three pods that were given back


@pytest.fixture
def deny(situation: Situation) -> Iterator[dict[str, Any]]:
    """An admission policy that lets no pod into the namespace."""
    name = f"deny-{situation.namespace}"
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]
    validation = {"expression": "false", "message": "no pods on Sundays", "reason": "Forbidden"}
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {"matchConstraints": {"resourceRules": rules}, "validations": [validation]},
    }
    selector = {"matchLabels": {"kubernetes.io/metadata.name": situation.namespace}}
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"], "matchResources": {"namespaceSelector": selector}},
    }
    situation.client.create("validatingadmissionpolicies", policy)
    situation.client.create("validatingadmissionpolicybindings", binding)
    probe = {"metadata": {"name": "probe"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}

    def denied() -> bool:
        try:
            situation.client.create("pods", probe, dryRun="All")
        except AssertionError:
            return True
        return False

    situation.wait_for("the policy is in force", denied)
    yield binding
    situation.client.delete("validatingadmissionpolicybindings", name, missing_ok=True)
    situation.client.delete("validatingadmissionpolicies", name, missing_ok=True)


@pytest.mark.parametrize(("seconds", "most"), [(12, 6), pytest.param(60, 10, marks=pytest.mark.long)])
def test_case_05_an_admission_policy_denies_pods(
    situation: Situation, deny: dict[str, Any], seconds: int, most: int
) -> None:
    situation.create()
    situation.wait("job", has_reason("PodsCreated", "Refused"))
    assert "no pods on Sundays" in situation.condition("PodsCreated")["message"]
    time.sleep(seconds)
    tries = [
        write for write in situation.writes() if write["objectRef"]["resource"] == "pods" and write["verb"] == "create"
    ]
    tries = [write for write in tries if "dryRun" not in write["requestURI"]]
    assert 2 <= len(tries) <= most
    assert {write["responseStatus"]["code"] for write in tries} == {422} or {403}
    assert len(situation.events(kind="Warning")) == 1
    situation.client.delete("validatingadmissionpolicybindings", deny["metadata"]["name"])
    situation.wait("job", "Running", timeout=60)
    assert situation.status().get("restarts", 0) == 0


def test_case_06_an_invalid_pod_is_terminal(situation: Situation) -> None:
    situation.create(podTemplate={"spec": {"tolerations": [{"key": "not a key"}]}})
    situation.wait("job", "Failed")
    failed = situation.condition("Failed")
    assert failed["reason"] == "InvalidPod"
    assert "tolerations" in failed["message"]
    assert not situation.pods()


@pytest.mark.parametrize("fault", [Fault.SERVER_ERROR, Fault.CONFLICT, Fault.TOO_MANY, Fault.UNAVAILABLE])
def test_case_06_other_refusals_are_not_terminal(bare: Situation, fault: Fault) -> None:
    proxy = bare.start_proxy()
    proxy.rule = lambda request: fault if creates_pod(request) and len(proxy.injected) < 3 else None
    bare.start_operator(proxy=proxy)
    bare.create()
    bare.wait("job", "Running", timeout=60)
    assert len(proxy.injected) == 3
    assert ANSWERS[fault]
    assert bare.status().get("restarts", 0) == 0
    bare.injected = 3
    bare.check()


def creates_pod(request: Request) -> bool:
    return request.method == "POST" and request.path.endswith("/pods") and "dryRun" not in request.query


def mutate(situation: Situation, name: str, patch: str) -> None:
    """An admission policy that changes every pod of the namespace."""
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]
    selector = {"matchLabels": {"kubernetes.io/metadata.name": situation.namespace}}
    version = "admissionregistration.k8s.io/v1"
    spec = {
        "matchConstraints": {"resourceRules": rules, "namespaceSelector": selector},
        "reinvocationPolicy": "Never",
        "failurePolicy": "Fail",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
    }
    policy = {"apiVersion": version, "kind": "MutatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec}
    binding = {
        "apiVersion": version,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name},
    }
    situation.client.create("mutatingadmissionpolicies", policy)
    situation.client.create("mutatingadmissionpolicybindings", binding)
    container = {"name": "c", "image": "x", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}
    probe = {
        "metadata": {"name": "probe", "labels": {"probe": "yes"}},
        # a token's volume has a random name, which would make any two pods differ
        "spec": {"containers": [container], "automountServiceAccountToken": False},
    }
    plain = changeable(situation.plane.client().create("pods", probe, dryRun="All"))

    situation.wait_for(
        "the policy is in force",
        lambda: changeable(situation.client.create("pods", probe, dryRun="All")) != plain,
    )


def changeable(pod: Object) -> tuple[Any, ...]:
    """What a policy of these tests may change."""
    return pod["metadata"]["labels"], pod["spec"]["containers"]


@pytest.fixture
def policies(situation: Situation) -> Iterator[str]:
    """A name for a policy, which is deleted afterwards."""
    name = f"change-{situation.namespace}"
    yield name
    for plural in ("mutatingadmissionpolicybindings", "mutatingadmissionpolicies"):
        situation.client.delete(plural, name, missing_ok=True)


def test_case_07_changed_pods_are_not_made_again(situation: Situation, policies: str) -> None:
    mutate(situation, policies, '[JSONPatch{op: "add", path: "/metadata/labels/site", value: "here"}]')
    ranges = [
        {"type": "Container", "default": {"ephemeral-storage": "1Gi"}, "defaultRequest": {"ephemeral-storage": "1Gi"}}
    ]
    situation.client.create("limitranges", {"metadata": {"name": "range"}, "spec": {"limits": ranges}})
    situation.start()
    pod = situation.pods()[0]
    assert pod["metadata"]["labels"]["site"] == "here"
    assert pod["spec"]["containers"][0]["resources"]["limits"]["ephemeral-storage"] == "1Gi"
    time.sleep(2.0)
    assert situation.made() == 2


def test_case_07_lost_guaranteed_qos_is_said(situation: Situation, policies: str) -> None:
    path = "/spec/containers/0/resources/requests/cpu"
    mutate(situation, policies, f'[JSONPatch{{op: "replace", path: "{path}", value: "1500m"}}]')
    situation.start(hardware={"cpusPerRank": 2}, numa={"pinning": "container"})
    assert situation.pods()[0]["status"]["qosClass"] == "Burstable"
    situation.wait("job", has_reason("NumaAligned", "NotGuaranteed"))
    assert situation.condition("NumaAligned")["status"] == "False"
    assert situation.made() == 2


def created(pod: dict[str, Any]) -> float:
    from datetime import datetime

    return datetime.fromisoformat(pod["metadata"]["creationTimestamp"]).timestamp()
