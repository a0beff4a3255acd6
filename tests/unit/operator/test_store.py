"""The store: newer replaces older, the deleted stay deleted, a list removes what it lacks."""

from __future__ import annotations

from typing import Any

from rollplex_operator import names
from rollplex_operator.resources import JOBS, PODS
from rollplex_operator.store import REMEMBERED_DELETIONS, Key, Store

KEY = Key("n", "a")


def make() -> tuple[Store, list[Key]]:
    changed: list[Key] = []
    return Store(changed.append), changed


def job(version: int, uid: str = "job", **more: Any) -> dict[str, Any]:
    metadata = {"name": "a", "namespace": "n", "uid": uid, "resourceVersion": str(version)}
    return {"apiVersion": JOBS.api_version, "kind": JOBS.kind, "metadata": metadata, "spec": {}, **more}


def pod(version: int, uid: str = "pod", phase: str = "Pending", label: str | None = "a") -> dict[str, Any]:
    labels = {} if label is None else {names.LABEL_JOB: label, names.LABEL_NODE: "0"}
    owners = [{"uid": "job", "controller": True}]
    metadata: dict[str, Any] = {"name": "a-0", "namespace": "n", "uid": uid, "resourceVersion": str(version)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "labels": labels, "ownerReferences": owners},
        "status": {"phase": phase},
    }


def phases(store: Store) -> list[str]:
    return [each.phase for each in store.pods(KEY)]


def test_older_version_never_replaces_a_newer_one() -> None:
    store, changed = make()
    store.put(PODS, pod(9, phase="Running"))
    store.put(PODS, pod(8))
    assert phases(store) == ["Running"]
    store.put(PODS, pod(10, phase="Failed"))  # as numbers, not as text
    assert phases(store) == ["Failed"]
    assert changed == [KEY, KEY]


def test_what_no_decision_depends_on_is_no_change() -> None:
    store, changed = make()
    store.put(PODS, pod(1))
    store.put(PODS, pod(2))
    assert changed == [KEY]


def test_late_reply_does_not_revive_a_deleted_object() -> None:
    store, _ = make()
    store.put(PODS, pod(1))
    store.remove("pod")
    store.put(PODS, pod(5))
    assert phases(store) == []


def test_reply_after_the_deletion_of_a_pod_that_was_never_seen() -> None:
    store, _ = make()
    store.remove("pod")
    store.put(PODS, pod(1))
    assert phases(store) == []


def test_deletions_are_remembered_within_a_bound() -> None:
    store, _ = make()
    for number in range(2 * REMEMBERED_DELETIONS):
        store.remove(str(number))
    assert len(store._gone) == REMEMBERED_DELETIONS


def test_list_removes_what_vanished_and_keeps_what_was_created_after_it() -> None:
    store, changed = make()
    store.put(PODS, pod(1, "old"))
    store.put(PODS, pod(20, "young"))
    store.put(JOBS, job(1))
    changed.clear()
    store.retain(PODS, None, set(), "10")
    assert [each.uid for each in store.pods(KEY)] == ["young"]
    assert store.job(KEY) is not None  # another kind
    assert changed == [KEY]


def test_list_of_a_namespace_says_nothing_of_others() -> None:
    store, _ = make()
    store.put(PODS, pod(1))
    store.retain(PODS, "other", set(), "10")
    assert len(store.pods(KEY)) == 1
    store.retain(PODS, "n", set(), "10")
    assert store.pods(KEY) == ()


def test_foreign_pods_and_those_that_lost_the_label_are_not_kept() -> None:
    store, changed = make()
    store.put(PODS, pod(1, label=None))
    assert changed == []
    store.put(PODS, pod(2))
    store.put(PODS, pod(3, label=None))
    assert store.pods(KEY) == ()
    assert changed == [KEY, KEY]


def test_relabelled_pod_moves_and_both_jobs_hear_of_it() -> None:
    store, changed = make()
    store.put(PODS, pod(1))
    store.put(PODS, pod(2, label="b"))
    assert store.pods(KEY) == ()
    assert len(store.pods(Key("n", "b"))) == 1
    assert changed[1:] == [KEY, Key("n", "b")]


def test_job_made_again_is_the_newer_one_before_the_deletion_was_told() -> None:
    store, _ = make()
    store.put(JOBS, job(9, "first"))
    store.put(JOBS, job(10, "second"))
    found = store.job(KEY)
    assert found is not None
    assert found.uid == "second"
    store.remove("first")
    assert [each.uid for _, each in store.jobs()] == ["second"]


def test_head_is_pod_0_of_this_very_job() -> None:
    store, _ = make()
    store.put(PODS, pod(1))
    head = store.head(KEY, "job")
    assert head is not None
    assert head.uid == "pod"
    assert store.head(KEY, "another") is None
