"""The job's ``podTemplate``: merged into its pods, as long as the operator and the trainer find them as they expect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from rollplex.api.base import quantity_bytes, shown
from rollplex.api.errors import Fault
from rollplex.api.job import RollplexJob
from rollplex_operator import gang, merge, numa, pods
from rollplex_operator.names import CONTAINER, GROUP, JOB_MOUNT
from rollplex_operator.observation import Settings

_TEMPLATE = "spec.podTemplate"
_CPU_UNITS = {"m": Decimal("0.001"), "": Decimal(1)}
_OWN = f"{GROUP}/"  # labels and annotations under it are the operator's
# of a pod: what tells it apart, or the operator and the trainer agree on. Of a rank container likewise.
_FIXED = (
    *("restartPolicy", "hostname", "subdomain", "setHostnameAsFQDN", "hostnameOverride", "shareProcessNamespace"),
    *("nodeName", "schedulingGroup"),
)
_FIXED_IN_RANK = ("restartPolicy", "restartPolicyRules", "terminationMessagePath", "terminationMessagePolicy")
_WAYS_OUT = {
    "nodeName": "use nodeSelector or affinity",
    "restartPolicy": "use runPolicy.restart and runPolicy.maxRestarts",
}


def template_faults(job: RollplexJob) -> list[Fault]:
    """What ``podTemplate`` may not change, and what in it is no pod; needs no server."""
    base = pods.base(
        job, pods.Resolved("process", "none", 1, "none", False), attempt=1, image="image", settings=Settings()
    )
    try:
        result = merged(job, base, 1)
        found = list(_identity_faults(base, result))
        if not found and job.spec.numa.pinning != "none":
            found = list(_guarantee_faults(result, _TEMPLATE))
    except merge.MergeError as error:
        return [Fault(f"{_TEMPLATE}.{error.path}", error.message)]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return [Fault(_TEMPLATE, f"is no pod template ({error}); write metadata and spec as Kubernetes has them")]
    return found


def merged(job: RollplexJob, base: Mapping[str, Any], containers: int) -> dict[str, Any]:
    """The pod with the job's template on it, and with the requests that follow from its limits.

    Raises:
        merge.MergeError: see :func:`template_faults`.
    """
    return pods.with_requests(merge.merged(base, _for_ranks(job.spec.pod_template, containers)))


def _for_ranks(template: Mapping[str, Any], containers: int) -> Mapping[str, Any]:
    """The template with its container ``trainer`` once for each rank container."""
    spec = template.get("spec")
    given = spec.get("containers") if isinstance(spec, Mapping) else None
    if containers == 1 or not isinstance(given, list):
        return template
    each: list[Any] = []
    for container in given:
        if isinstance(container, Mapping) and container.get("name") == CONTAINER:
            each += [{**container, "name": pods.container_name(index)} for index in range(containers)]
        else:
            each.append(container)
    return {**template, "spec": {**spec, "containers": each}} if isinstance(spec, Mapping) else template


def _identity_faults(base: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[Fault]:
    """What the merged pod has otherwise than the pod without the template."""
    metadata, spec = result.get("metadata", {}), result.get("spec", {})
    for key in metadata.keys() - {"labels", "annotations"}:
        yield Fault(f"{_TEMPLATE}.metadata.{key}", "is the operator's to set; labels and annotations may be added")
    for kind in ("labels", "annotations"):
        for key in sorted(metadata.get(kind) or {}):
            if key.startswith(_OWN):
                yield Fault(
                    f"{_TEMPLATE}.metadata.{kind}.{key}", f"keys under {_OWN} are the operator's; choose another"
                )
            elif key in gang.RESERVED:
                yield Fault(f"{_TEMPLATE}.metadata.{kind}.{key}", "is the gang's; use spec.scheduling.queue and gang")
    path = f"{_TEMPLATE}.spec"
    yield from _changes(base["spec"], spec, _FIXED, path)
    volumes = [each["name"] for each in base["spec"]["volumes"]]
    yield from _changed_items(base["spec"]["volumes"], spec.get("volumes"), "name", volumes, f"{path}.volumes")
    yield from _changed_items((), spec.get("resourceClaims"), "name", (numa.CLAIM,), f"{path}.resourceClaims")
    for kind in ("initContainers", "containers"):
        for container in spec.get(kind, ()):
            name = container["name"]
            if pods.is_rank(name) and (kind, name) != ("containers", CONTAINER):
                yield Fault(
                    f"{path}.{kind}.{name}", f"is a rank container's name; choose another, or merge into {CONTAINER}"
                )
    own = base["spec"]["containers"][0]
    rank = next((each for each in spec.get("containers", ()) if each["name"] == CONTAINER), None)
    if rank is None:
        yield Fault(f"{path}.containers", f"leaves no container {CONTAINER}; a template adds to it")
        return
    at = f"{path}.containers.{CONTAINER}"
    yield from _changes(own, rank, _FIXED_IN_RANK, at)
    contract = [each["name"] for each in own["env"] if each["name"].startswith("ROLLPLEX_")]
    contract += ["ROLLPLEX_ATTEMPT", "ROLLPLEX_NODE"]  # set once the pod has its index
    yield from _changed_items(own["env"], rank.get("env"), "name", contract, f"{at}.env")
    mounts = (JOB_MOUNT, pods.SHM_MOUNT)
    yield from _changed_items(own["volumeMounts"], rank.get("volumeMounts"), "mountPath", mounts, f"{at}.volumeMounts")


def _changes(base: Mapping[str, Any], result: Mapping[str, Any], keys: Iterable[str], path: str) -> Iterator[Fault]:
    for key in keys:
        if base.get(key) != result.get(key):
            way_out = _WAYS_OUT.get(key, "leave it out")
            yield Fault(
                f"{path}.{key}", f"{shown(result.get(key))} would change what the operator relies on; {way_out}"
            )


def _changed_items(base: Any, result: Any, key: str, names: Iterable[str], path: str) -> Iterator[Fault]:
    before, after = ({item.get(key): item for item in items or ()} for items in (base, result))
    for name in names:
        if before.get(name) != after.get(name):
            yield Fault(
                f"{path}.{name}", "is the operator's and may not be changed; choose another name, or leave it out"
            )


def _guarantee_faults(pod: Mapping[str, Any], path: str) -> Iterator[Fault]:
    """What keeps a pod (with its requests) from QoS class Guaranteed, and rank containers from CPUs of their own."""
    for kind in ("initContainers", "containers"):
        for container in pod["spec"].get(kind, ()):
            at = f"{path}.spec.{kind}.{container['name']}.resources"
            resources = container.get("resources", {})
            limits, requests = resources.get("limits", {}), resources.get("requests", {})
            missing = [name for name in ("cpu", "memory") if name not in limits]
            if missing:
                yield Fault(
                    at,
                    f"has no limits of {' and '.join(missing)}, so the pod would not be of class Guaranteed and its "
                    "ranks would have no CPUs of their own; give limits, or use numa.pinning none",
                )
                continue
            for name in ("cpu", "memory"):
                limit, request = _number(limits[name]), _number(requests[name])
                if limit is None or request is None:
                    wrong = limits[name] if limit is None else requests[name]
                    yield Fault(at, f"{name} {wrong!r} is not a quantity such as {'4' if name == 'cpu' else '8Gi'}")
                elif limit != request:
                    yield Fault(
                        at,
                        f"{name}: request {requests[name]} and limit {limits[name]} differ, so the pod would not be of "
                        "class Guaranteed; give the limit alone, or use numa.pinning none",
                    )
                elif name == "cpu" and pods.is_rank(container["name"]) and limit % 1:
                    yield Fault(
                        at, f"cpu {limits[name]}: only whole CPUs can be a rank container's own; give a whole number"
                    )


def _number(quantity: Any) -> Decimal | None:
    """Of CPUs or bytes; None for what is no quantity."""
    text = str(quantity)
    try:
        return Decimal(text.removesuffix("m")) * _CPU_UNITS["m" if text.endswith("m") else ""]
    except InvalidOperation:
        pass
    try:
        return Decimal(quantity_bytes(text))
    except ValueError:
        return None
