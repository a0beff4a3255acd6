"""What a namespace's administrator does to pods: quotas, and admission policies that deny or change them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.cluster.client import Object, RefusedError
from tests.cluster.situation import Situation

VERSION = "admissionregistration.k8s.io/v1"
RULES = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]


def quota(situation: Situation, pods: int) -> None:
    """So many pods fit into the namespace, from now on."""
    hard = {"pods": str(pods)}
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": hard}}
    situation.client.apply("resourcequotas", body)
    situation.client.wait("resourcequotas", "few", lambda quota: quota.get("status", {}).get("hard") == hard)


@contextlib.contextmanager
def denying(situation: Situation) -> Iterator[None]:
    """No pod is let into the namespace."""
    validation = {"expression": "false", "message": "no pods on Sundays", "reason": "Forbidden"}
    probe = _probe()

    def acts() -> bool:
        try:
            situation.client.create("pods", probe, dryRun="All")
        except RefusedError:
            return True
        return False

    binding = {
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": _only(situation)},
    }
    spec = {"matchConstraints": {"resourceRules": RULES}, "validations": [validation]}
    with _policy(situation, "Validating", spec, binding, acts):
        yield


@contextlib.contextmanager
def changing(situation: Situation, patch: str) -> Iterator[None]:
    """Every pod of the namespace is changed by a JSON patch, a CEL expression."""
    spec = {
        "matchConstraints": {"resourceRules": RULES, "namespaceSelector": _only(situation)},
        "reinvocationPolicy": "Never",
        "failurePolicy": "Fail",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
    }
    probe = _probe()
    plain = _changeable(situation.client.create("pods", probe, dryRun="All"))

    def acts() -> bool:
        return _changeable(situation.client.create("pods", probe, dryRun="All")) != plain

    with _policy(situation, "Mutating", spec, {}, acts):
        yield


@contextlib.contextmanager
def _policy(
    situation: Situation,
    kind: str,
    spec: Mapping[str, Any],
    binding: Mapping[str, Any],
    acts: Callable[[], bool],
) -> Iterator[None]:
    """A policy and its binding, once it acts."""
    name, plural = f"{kind.lower()}-{situation.namespace}", f"{kind.lower()}admissionpolicies"
    bindings = f"{kind.lower()}admissionpolicybindings"
    about = {"apiVersion": VERSION, "metadata": {"name": name}}
    situation.client.create(plural, {**about, "kind": f"{kind}AdmissionPolicy", "spec": spec})
    try:
        body = {**about, "kind": f"{kind}AdmissionPolicyBinding", "spec": {"policyName": name, **binding}}
        situation.client.create(bindings, body)
        situation.wait_for("the policy is in force", acts)
        yield
    finally:
        situation.client.delete(bindings, name, missing_ok=True)
        situation.client.delete(plural, name)


def _only(situation: Situation) -> Object:
    return {"matchLabels": {"kubernetes.io/metadata.name": situation.namespace}}


def _probe() -> Object:
    container = {"name": "c", "image": "x", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}
    # a token's volume has a random name, which would make any two pods differ
    spec = {"containers": [container], "automountServiceAccountToken": False}
    return {"metadata": {"name": "probe", "labels": {"probe": "yes"}}, "spec": spec}


def _changeable(pod: Object) -> tuple[Any, ...]:
    return pod["metadata"]["labels"], pod["spec"]["containers"]
