"""Kubernetes' strategic merge for pods: mappings merge, lists merge by their key where Kubernetes has one.

``null`` removes a key; ``$patch: delete`` removes an item of a keyed list, ``$patch: replace`` puts the patch (or, as
an item of a list, the other items) in the place of what is there. The patch may come from a user: whatever form it
has, the answer is a pod or a MergeError.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Which key the items of a list have; every other list is replaced whole. As Kubernetes has it (the struct tags
# patchMergeKey of k8s.io/api/core/v1), and a container's claims by name, as server-side apply merges them.
_CONTAINER = {
    "env": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "resources.claims": "name",
}
_POD = {
    "spec.volumes": "name",
    "spec.imagePullSecrets": "name",
    "spec.hostAliases": "ip",
    "spec.schedulingGates": "name",
    "spec.resourceClaims": "name",
    "spec.topologySpreadConstraints": "topologyKey",
    "metadata.ownerReferences": "uid",
}
_LISTS_OF_CONTAINERS = ("spec.containers", "spec.initContainers", "spec.ephemeralContainers")
KEYS: Mapping[str, str] = {
    **_POD,
    **dict.fromkeys(_LISTS_OF_CONTAINERS, "name"),
    **{f"{containers}.*.{path}": key for containers in _LISTS_OF_CONTAINERS for path, key in _CONTAINER.items()},
}

_PATCH = "$patch"


class MergeError(ValueError):
    """A patch that cannot be merged: where in it, and why."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path, self.message = path, message


def merged(pod: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """A pod (metadata, spec) with a patch on it. Neither is changed; the answer may share parts with both.

    Raises:
        MergeError: for a patch of another form.
    """
    return _mapping(pod, patch, "", "")


def _mapping(base: Mapping[str, Any], patch: Mapping[str, Any], kind: str, path: str) -> dict[str, Any]:
    """``kind`` is the path with * for an item, as KEYS has it; ``path`` names the item."""
    how = patch.get(_PATCH)
    if how not in (None, "merge", "replace"):
        raise MergeError(_join(path, _PATCH), f"{how!r} is not one of merge, replace (delete is for items of lists)")
    result: dict[str, Any] = {} if how == "replace" else dict(base)
    for key, value in patch.items():
        at, kind_at = _join(path, str(key)), _join(kind, str(key))
        if not isinstance(key, str):
            raise MergeError(at, "is not a text; every key of a pod is one")
        if key == _PATCH:
            continue
        if key.startswith("$"):
            raise MergeError(at, "is not read here; use $patch: delete or replace")
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _value(result.get(key), value, kind_at, at)
    return result


def _value(base: Any, patch: Any, kind: str, path: str) -> Any:
    if kind in KEYS:
        if not isinstance(patch, list):
            raise MergeError(path, "is not a list")
        return _list(base if isinstance(base, list) else [], patch, KEYS[kind], kind, path)
    if isinstance(patch, Mapping):
        return _mapping(base if isinstance(base, Mapping) else {}, patch, kind, path)
    if isinstance(base, Mapping):
        raise MergeError(path, "is not a mapping")
    return patch


def _list(base: list[Any], patch: list[Any], key: str, kind: str, path: str) -> list[Any]:
    for index, item in enumerate(patch):
        if not isinstance(item, Mapping):
            raise MergeError(_join(path, str(index)), "is not a mapping")
    if any(set(item) == {_PATCH} and item[_PATCH] == "replace" for item in patch):
        base, patch = [], [item for item in patch if set(item) != {_PATCH}]
    result = list(base)
    for index, item in enumerate(patch):
        name = item.get(key)
        if name is None:
            raise MergeError(_join(path, str(index)), f"has no {key}, by which the items of this list are told apart")
        at, kind_at = _join(path, str(name)), f"{kind}.*"
        place = next((place for place, there in enumerate(result) if there.get(key) == name), None)
        if item.get(_PATCH) == "delete":
            result = [there for there in result if there.get(key) != name]
        elif place is None:
            result.append(_mapping({}, item, kind_at, at))
        else:
            result[place] = _mapping(result[place], item, kind_at, at)
    return result


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
