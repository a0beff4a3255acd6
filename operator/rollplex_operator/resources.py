"""The kinds of objects that the operator reads and writes: where the API server has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rollplex.api.job import KIND
from rollplex_operator.names import GROUP, LABEL_JOB, PLURAL, VERSION


@dataclass(frozen=True, slots=True)
class Resource:
    """A namespaced kind. ``group`` is empty for the core API."""

    group: str
    version: str
    plural: str
    kind: str
    selector: str = LABEL_JOB  # of the watch: the server sends nothing else

    @property
    def api_version(self) -> str:
        """As manifests have it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """Path of its group and version."""
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str | None, name: str = "", part: str = "") -> str:
        """Path of a collection (of all namespaces where ``namespace`` is None), an object, or a part of it."""
        space = "" if namespace is None else f"/namespaces/{namespace}"
        return "/".join(filter(None, (f"{self.root}{space}/{self.plural}", name, part)))


JOBS = Resource(GROUP, VERSION, PLURAL, KIND, selector="")
PODS = Resource("", "v1", "pods", "Pod")
CLAIM_TEMPLATES = Resource("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate")
NATIVE_GROUPS = Resource("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup")
COSCHEDULING_GROUPS = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
VOLCANO_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")

# every server has these
ALWAYS = (
    JOBS,
    PODS,
    Resource("", "v1", "services", "Service"),
    Resource("", "v1", "configmaps", "ConfigMap"),
    Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"),
)
# these are watched where they exist
OPTIONAL = (CLAIM_TEMPLATES, NATIVE_GROUPS, COSCHEDULING_GROUPS, VOLCANO_GROUPS)

_BY_KIND: Mapping[tuple[str, str], Resource] = {(each.api_version, each.kind): each for each in ALWAYS + OPTIONAL}


def of(manifest: Mapping[str, Any]) -> Resource:
    """Which kind a manifest is of; KeyError for one that is no child's."""
    return _BY_KIND[manifest["apiVersion"], manifest["kind"]]
