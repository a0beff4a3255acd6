"""Strategic merge, against what Kubernetes answers to the same patches."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollplex_operator.merge import MergeError, merged

POD: dict[str, Any] = {
    "metadata": {"labels": {"a": "1", "b": "2"}},
    "spec": {
        "nodeSelector": {"zone": "x"},
        "tolerations": [{"key": "old"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}],
        "containers": [
            {
                "name": "trainer",
                "args": ["a", "b"],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "ports": [{"containerPort": 1, "name": "one"}],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                "resources": {"limits": {"cpu": "1"}, "claims": [{"name": "gpus"}]},
            }
        ],
    },
}


def trainer(**patch: Any) -> dict[str, Any]:
    containers = merged(POD, {"spec": {"containers": [{"name": "trainer", **patch}]}})["spec"]["containers"]
    assert len(containers) == 1
    found: dict[str, Any] = containers[0]
    return found


def test_mappings_merge_and_null_removes() -> None:
    patch = {"metadata": {"labels": {"b": None, "c": "3"}}, "spec": {"nodeSelector": {"rack": "y"}}}
    result = merged(POD, patch)
    assert result["metadata"]["labels"] == {"a": "1", "c": "3"}
    assert result["spec"]["nodeSelector"] == {"zone": "x", "rack": "y"}


@pytest.mark.parametrize(
    ("field", "patch", "expected"),
    [
        ("env", [{"name": "B", "value": "3"}, {"name": "C", "value": "4"}], {"A": "1", "B": "3", "C": "4"}),
        ("env", [{"name": "A", "$patch": "delete"}], {"B": "2"}),
        ("env", [{"$patch": "replace"}, {"name": "C", "value": "4"}], {"C": "4"}),
        ("env", [{"name": "A", "$patch": "replace", "value": "9"}], {"A": "9", "B": "2"}),
    ],
)
def test_keyed_list_of_a_container(field: str, patch: list[Any], expected: dict[str, str]) -> None:
    assert {item["name"]: item["value"] for item in trainer(**{field: patch})[field]} == expected


def test_other_keys_than_names() -> None:
    assert trainer(ports=[{"containerPort": 1, "hostPort": 2}])["ports"] == [
        {"containerPort": 1, "name": "one", "hostPort": 2}
    ]
    mounts = trainer(volumeMounts=[{"mountPath": "/data", "readOnly": True}])["volumeMounts"]
    assert mounts == [{"name": "data", "mountPath": "/data", "readOnly": True}]
    assert trainer(resources={"claims": [{"name": "nic"}]})["resources"]["claims"] == [
        {"name": "gpus"},
        {"name": "nic"},
    ]


def test_lists_without_a_key_are_replaced() -> None:
    assert trainer(args=["c"])["args"] == ["c"]
    assert merged(POD, {"spec": {"tolerations": [{"key": "new"}]}})["spec"]["tolerations"] == [{"key": "new"}]


def test_a_list_that_was_not_there_keeps_no_directive() -> None:
    result = merged({"spec": {}}, {"spec": {"containers": [{"name": "x", "env": [{"name": "A", "$patch": "delete"}]}]}})
    assert result == {"spec": {"containers": [{"name": "x", "env": []}]}}


@pytest.mark.parametrize(
    ("patch", "path"),
    [
        ({"spec": {"containers": {}}}, "spec.containers"),
        ({"spec": {"containers": ["x"]}}, "spec.containers.0"),
        ({"spec": {"containers": [{"image": "x"}]}}, "spec.containers.0"),
        ({"spec": {"containers": [{"name": "trainer", "env": "x"}]}}, "spec.containers.trainer.env"),
        ({"spec": {"containers": [{"name": "trainer", "resources": 1}]}}, "spec.containers.trainer.resources"),
        ({"spec": {"$patch": "delete"}}, "spec.$patch"),
        ({"spec": {"$retainKeys": ["x"]}}, "spec.$retainKeys"),
        ({"metadata": "x"}, "metadata"),
        ({"metadata": {1: "x"}}, "metadata.1"),
    ],
)
def test_another_form_is_an_error_with_its_place(patch: dict[Any, Any], path: str) -> None:
    with pytest.raises(MergeError) as caught:
        merged(POD, patch)
    assert caught.value.path == path


_leaves = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
_keys = st.sampled_from(["spec", "metadata", "containers", "name", "trainer", "env", "labels", "$patch", "resources"])
_trees = st.recursive(
    _leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=4), max_leaves=12
)


@given(st.dictionaries(_keys, _trees, max_size=4))
def test_any_patch_gives_a_pod_or_a_merge_error_and_changes_nothing(patch: dict[str, Any]) -> None:
    pod, before = copy.deepcopy(POD), copy.deepcopy(patch)
    with contextlib.suppress(MergeError):  # any other error is a bug
        assert isinstance(merged(pod, patch), dict)
    assert pod == POD
    assert patch == before


@given(st.dictionaries(st.sampled_from("abc"), st.text(max_size=3)))
def test_merging_twice_is_merging_once(labels: dict[str, str]) -> None:
    patch = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "trainer", "env": [{"name": "Z"}]}]}}
    assert merged(merged(POD, patch), patch) == merged(POD, patch)
