"""The operator as a process: how it starts, logs, ends, and what rights it can do without."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.cluster.operator_process import Operator
from tests.cluster.situation import Situation

RBAC = "/apis/rbac.authorization.k8s.io/v1"
# what the operator needs in a namespace that it serves, and nothing beyond it
NAMESPACED = [
    {"apiGroups": ["rollplex.io"], "resources": ["rollplexjobs"], "verbs": ["get", "list", "watch", "delete"]},
    {"apiGroups": ["rollplex.io"], "resources": ["rollplexjobs/status"], "verbs": ["update"]},
    {"apiGroups": ["rollplex.io"], "resources": ["rollplexjobs/finalizers"], "verbs": ["update"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "create", "delete"]},
    {
        "apiGroups": ["", "policy", "resource.k8s.io"],
        "resources": ["services", "configmaps", "poddisruptionbudgets", "resourceclaimtemplates"],
        "verbs": ["get", "list", "watch", "create", "patch", "delete"],
    },
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]},
]


def log(operator: Operator) -> list[dict[str, Any]]:
    """Its lines, each of which must be JSON."""
    return [json.loads(line) for line in operator.program.log.read_text().splitlines()]


def test_starts_runs_a_job_and_ends_gracefully(bare: Situation) -> None:
    operator = bare.start_operator(leader_elect=True)
    job = bare.start()
    began = time.monotonic()
    assert operator.program.stop() == 0
    assert time.monotonic() - began < 5
    lease = bare.client.get("leases", "rollplex-operator")
    assert lease["spec"]["holderIdentity"] == ""
    bare.fail()
    following = bare.start_operator(leader_elect=True)
    bare.wait_attempt(1)
    about = next(line for line in log(following) if line["message"].startswith("PodFailed"))
    assert (about["namespace"], about["name"], about["uid"]) == (bare.namespace, "job", job["metadata"]["uid"])
    assert about["attempt"] == 0
    assert about["level"] == "info"


def test_standby_is_ready_and_has_no_watch(bare: Situation) -> None:
    bare.start_operator(leader_elect=True)
    standby = bare.start_operator(leader_elect=True)
    assert standby.answers("/healthz")
    assert "rollplex_operator_leading 0.0" in standby.metrics()
    assert "rollplex_operator_watch_age_seconds{" not in standby.metrics()
    assert bare.plane.writes(standby.user) == []


@pytest.fixture
def rights(plane: ControlPlane, namespace: str) -> str:
    """A user who may do what the operator needs in the namespace."""
    user = f"limited-{namespace}"
    client = plane.client(namespace=namespace)
    path = f"{RBAC}/namespaces/{namespace}"
    client.request("POST", f"{path}/roles", {"metadata": {"name": "operator"}, "rules": NAMESPACED})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "operator"}
    account = {"kind": "ServiceAccount", "name": "operator", "namespace": namespace}
    client.request(
        "POST", f"{path}/rolebindings", {"metadata": {"name": "operator"}, "roleRef": role, "subjects": [account]}
    )
    client.create("serviceaccounts", {"metadata": {"name": "operator"}})
    answer = client.request(
        "POST",
        client.path("serviceaccounts", "operator", "token"),
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}},
    )
    plane.tokens[user] = answer["status"]["token"]
    return user


def test_namespaced_mode_needs_no_rights_on_the_cluster(bare: Situation, rights: str) -> None:
    operator = bare.start_operator(user=rights, leader_elect=True)
    bare.start(runPolicy={"restart": "newPods"})
    bare.fail()
    bare.wait_attempt(1)
    bare.complete()
    bare.wait("job", "Complete")
    assert not [line for line in log(operator) if line["level"] == "error"]
    bare.check()


def test_bad_options_are_refused_in_one_line(plane: ControlPlane, bare: Situation) -> None:
    operator = Operator(plane, bare.namespace, arguments=("--watch-limit", "60"))
    bare.wait_for("it ends", lambda: not operator.program.running)
    assert operator.program.process.returncode == 2
    assert "--watch-limit 60 must be above --watch-inactivity 70" in operator.program.log.read_text()
