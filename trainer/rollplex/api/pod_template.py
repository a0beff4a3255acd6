"""The form of ``spec.podTemplate``: what the job's rules read of it is typed, the rest goes to the pods as it is.

The other fields of Kubernetes 1.37 are named too, without a type: the API server compares fields that a schema does not
name by their values only, so that one could take the place of another in a job that must not change.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ConfigDict, Field, ValidationError

from rollplex.api.base import Items, Section
from rollplex.api.errors import Fault
from rollplex.api.job import JobSpec
from rollplex.api.schema import Schema, structural
from rollplex.api.wording import errors_of, fault_of

_MOUNT = ("name", "subPath", "subPathExpr", "mountPropagation", "recursiveReadOnly")
_CONTAINER = (
    *("image", "command", "args", "workingDir", "ports", "env", "envFrom", "resources", "resizePolicy", "lifecycle"),
    *("restartPolicy", "restartPolicyRules", "volumeDevices", "livenessProbe", "readinessProbe", "startupProbe"),
    *("terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy", "securityContext"),
    *("stdin", "stdinOnce", "tty"),
)
_POD = (
    *("volumes", "initContainers", "ephemeralContainers", "restartPolicy", "terminationGracePeriodSeconds"),
    *("activeDeadlineSeconds", "dnsPolicy", "nodeSelector", "serviceAccountName", "serviceAccount"),
    *("automountServiceAccountToken", "nodeName", "hostNetwork", "hostPID", "hostIPC", "hostUsers"),
    *("shareProcessNamespace", "securityContext", "imagePullSecrets", "hostname", "subdomain", "hostnameOverride"),
    *("affinity", "schedulerName", "tolerations", "hostAliases", "priorityClassName", "priority", "dnsConfig"),
    *("readinessGates", "runtimeClassName", "enableServiceLinks", "preemptionPolicy", "overhead", "os"),
    *("topologySpreadConstraints", "setHostnameAsFQDN", "schedulingGates", "resourceClaims", "resources"),
    *("schedulingGroup", "workloadRef"),
)
# null is kept: in a strategic merge it takes a field away
_UNTYPED = {"x-kubernetes-preserve-unknown-fields": True, "nullable": True}


class _Open(Section):
    """A section that takes fields which it does not know."""

    model_config = ConfigDict(extra="allow")


class MountForm(_Open):
    """A mount of a container."""

    mount_path: str | None = Field(None, description="Where it is mounted.", max_length=512)
    read_only: bool | None = Field(None, description="Mount it read-only.")


class ContainerForm(_Open):
    """A container; the one named trainer merges into every rank container."""

    name: str | None = Field(None, description="Its name.", max_length=63)
    volume_mounts: Items[MountForm] | None = Field(None, description="Its mounts.", max_length=32)


class PodForm(_Open):
    """A pod's spec."""

    containers: Items[ContainerForm] | None = Field(None, description="Merged by name.", max_length=16)


class MetadataForm(Section):
    """Labels and annotations: the rest of a pod's metadata is the operator's."""

    labels: dict[str, str | None] | None = Field(None, description="Put on every pod.", max_length=64)
    annotations: dict[str, str | None] | None = Field(None, description="Put on every pod.", max_length=64)


class TemplateForm(Section):
    """The whole template."""

    metadata: MetadataForm | None = Field(None, description="Labels and annotations of the pods.")
    spec: PodForm | None = Field(None, description="Kubernetes' pod spec.")


class _Spec(Section):
    pod_template: TemplateForm = Field(description="The template.")


class _Job(Section):
    """So that faults are told with their whole path."""

    spec: _Spec = Field(description="The job's spec.")


def pod_template_has_its_form(spec: JobSpec, _: int) -> Iterator[Fault]:
    """`podTemplate` has `metadata` and `spec`; containers and their mounts in it are lists of mappings."""
    try:
        _Job.model_validate({"spec": {"podTemplate": spec.pod_template}}, by_alias=True, by_name=False)
    except ValidationError as error:
        yield from (fault_of(detail, _Job) for detail in errors_of(error))


def template_schema() -> Schema:
    """The template's structural schema."""
    schema = structural(TemplateForm, defaults=False)
    pod = schema["properties"]["spec"]
    container = pod["properties"]["containers"]["items"]
    mount = container["properties"]["volumeMounts"]["items"]
    for node, names in ((pod, _POD), (container, _CONTAINER), (mount, _MOUNT)):
        node["properties"] |= {name: dict(_UNTYPED) for name in names}
    return schema
