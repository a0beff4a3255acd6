"""What is kept of an object."""

from __future__ import annotations

from typing import Any

import pytest

from rollplex_operator import names
from rollplex_operator.projections import LARGEST_MESSAGE, child_view, job_view, pod_view
from rollplex_operator.times import seconds_of


def pod(**parts: Any) -> dict[str, Any]:
    metadata = {"name": "a-0", "namespace": "n", "uid": "u", "resourceVersion": "1", **parts.pop("metadata", {})}
    spec = {"containers": [{"name": "trainer"}, {"name": "trainer-1"}], **parts.pop("spec", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": parts.pop("status", {})}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1970-01-01T00:00:01Z", 1.0), ("1970-01-01T00:00:01.5Z", 1.5), (None, None), ("soon", None), (7, None)],
)
def test_seconds(text: Any, expected: float | None) -> None:
    assert seconds_of(text) == expected


def test_pod_new_and_without_status() -> None:
    view = pod_view(pod())
    assert (view.phase, view.node, view.ip, view.owner_uid, view.attempt, view.index) == (
        "Pending",
        None,
        None,
        "",
        -1,
        -1,
    )
    assert [each.name for each in view.containers] == ["trainer", "trainer-1"]
    assert not any(each.running or each.ready for each in view.containers)


def test_pod_labels_and_owner() -> None:
    owners = [{"uid": "x"}, {"uid": "job", "controller": True}]
    labels = {names.LABEL_ATTEMPT: "3", names.LABEL_NODE: "12"}
    view = pod_view(pod(metadata={"labels": labels, "ownerReferences": owners}))
    assert (view.owner_uid, view.attempt, view.index) == ("job", 3, 12)


@pytest.mark.parametrize("text", ["", "-1", "x", "1e3", "²"])
def test_pod_odd_labels_are_no_attempt(text: str) -> None:
    assert pod_view(pod(metadata={"labels": {names.LABEL_ATTEMPT: text}})).attempt == -1


def test_pod_deletion_begins_when_it_was_asked_for() -> None:
    metadata = {"deletionTimestamp": "1970-01-01T00:05:00Z", "deletionGracePeriodSeconds": 100}
    view = pod_view(pod(metadata=metadata))
    assert (view.deleting_since, view.grace_seconds) == (200.0, 100.0)


def test_pod_containers_keep_the_pods_order() -> None:
    ended = {"exitCode": 3, "finishedAt": "1970-01-01T00:00:09Z", "message": "{}"}
    statuses = [
        {"name": "trainer-1", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no"}}, "restartCount": 2},
        {"name": "trainer", "state": {"terminated": ended}, "ready": False},
    ]
    first, second = pod_view(pod(status={"containerStatuses": statuses})).containers
    assert (first.name, first.exit_code, first.finished, first.termination_message) == ("trainer", 3, 9.0, "{}")
    assert (second.waiting_reason, second.waiting_message, second.restarts) == ("ImagePullBackOff", "no", 2)
    assert second.exit_code is None


def test_pod_conditions() -> None:
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    view = pod_view(pod(status={"conditions": [scheduled, disrupted], "phase": "Failed"}))
    assert (view.unschedulable, view.disrupted, view.phase) == ("0/3 nodes", "PreemptionByScheduler", "Failed")
    gone = {**disrupted, "status": "False"}
    assert pod_view(pod(status={"conditions": [gone]})).disrupted == ""


def test_pod_held_by_gates_is_not_unschedulable() -> None:
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "gated"}
    view = pod_view(pod(spec={"schedulingGates": [{"name": "x"}]}, status={"conditions": [scheduled]}))
    assert view.gated
    assert view.unschedulable == ""


def test_pod_long_messages_are_cut_and_null_ones_are_empty() -> None:
    assert len(pod_view(pod(status={"message": "x" * 10**6})).message) == LARGEST_MESSAGE
    assert pod_view(pod(status={"message": None, "reason": None, "podIP": ""})).ip is None


def test_job_keeps_what_the_user_wrote() -> None:
    metadata = {
        "name": "a",
        "namespace": "n",
        "uid": "u",
        "resourceVersion": "7",
        "generation": 2,
        "labels": {"team": "x"},
        "managedFields": [{"manager": "kubectl"}],
        "deletionTimestamp": "1970-01-01T00:00:01Z",
    }
    body = {"apiVersion": "rollplex.io/v1alpha1", "kind": "RollplexJob", "metadata": metadata, "spec": {"nodes": 2}}
    view = job_view(body)
    assert view.document["metadata"] == {"name": "a", "namespace": "n", "labels": {"team": "x"}}
    assert (view.deleting, view.generation, view.resource_version, view.status) == (True, 2, "7", {})


def test_child_content() -> None:
    metadata = {"name": "a", "uid": "u", "annotations": {names.ANNOTATION_CONTENT: "hash"}}
    view = child_view({"kind": "Service", "metadata": metadata})
    assert (view.kind, view.content, view.attempt, view.deleting) == ("Service", "hash", -1, False)
