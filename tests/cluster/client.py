"""A small synchronous client of the API server for tests, and kubectl as a person would use it."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import requests
import yaml

from tests.cluster import programs
from tests.cluster.processes import wait_for

Object = dict[str, Any]
# plural -> path of its group and version
GROUPS = {
    **dict.fromkeys(
        (
            *("namespaces", "nodes", "pods", "services", "configmaps", "events", "resourcequotas", "limitranges"),
            *("serviceaccounts", "secrets", "persistentvolumes", "persistentvolumeclaims"),
        ),
        "/api/v1",
    ),
    "rollplexjobs": "/apis/rollplex.io/v1alpha1",
    "poddisruptionbudgets": "/apis/policy/v1",
    "leases": "/apis/coordination.k8s.io/v1",
    "podgroups": "/apis/scheduling.k8s.io/v1beta1",
    "priorityclasses": "/apis/scheduling.k8s.io/v1",
    "customresourcedefinitions": "/apis/apiextensions.k8s.io/v1",
    **dict.fromkeys(
        ("resourceslices", "resourceclaims", "resourceclaimtemplates", "deviceclasses"), "/apis/resource.k8s.io/v1"
    ),
    **dict.fromkeys(
        (
            *("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
            *("mutatingadmissionpolicies", "mutatingadmissionpolicybindings"),
        ),
        "/apis/admissionregistration.k8s.io/v1",
    ),
    **dict.fromkeys(
        ("clusterqueues", "localqueues", "resourceflavors", "workloads", "workloadpriorityclasses"),
        "/apis/kueue.x-k8s.io/v1beta2",
    ),
}
CLUSTER_WIDE = frozenset(
    (
        *(
            "namespaces",
            "nodes",
            "persistentvolumes",
            "priorityclasses",
            "customresourcedefinitions",
            "resourceslices",
            "deviceclasses",
        ),
        *("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
        *("mutatingadmissionpolicies", "mutatingadmissionpolicybindings"),
        *("clusterqueues", "resourceflavors", "workloadpriorityclasses"),
    )
)


class RefusedError(AssertionError):
    """The server refused a request; ``code`` is the HTTP status, the message its own."""

    def __init__(self, code: int, message: str, reason: str = "") -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code, self.message, self.reason = code, message, reason


class Client:
    """Requests as one user. ``namespace`` is where namespaced objects are, unless a call says another."""

    def __init__(self, url: str, authority: Path, token: str, namespace: str = "default") -> None:
        self.url, self.authority, self.token, self.namespace = url, authority, token, namespace
        self._local = threading.local()

    def within(self, namespace: str) -> Client:
        """The same user in another namespace."""
        return Client(self.url, self.authority, self.token, namespace)

    def request(
        self, verb: str, path: str, body: object = None, content: str = "application/json", **query: str
    ) -> Object:
        """One request; its reply as JSON.

        Raises:
            RefusedError: for any status but 2xx.
        """
        data = None if body is None else json.dumps(body)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": content, "User-Agent": "rollplex-tests"}
        answer = self._session.request(verb, self.url + path, data=data, headers=headers, params=query, timeout=60)
        if not answer.ok:
            try:
                status = answer.json()
            except ValueError:
                status = {"message": answer.text}
            raise RefusedError(answer.status_code, status.get("message", ""), status.get("reason", ""))
        reply: Object = answer.json() if "json" in answer.headers.get("Content-Type", "") else {"text": answer.text}
        return reply

    @property
    def _session(self) -> requests.Session:
        if not hasattr(self._local, "session"):  # a Session is not made for threads
            self._local.session = requests.Session()
            self._local.session.verify = str(self.authority)
            self._local.session.trust_env = False
        session: requests.Session = self._local.session
        return session

    def path(self, plural: str, name: str = "", part: str = "", namespace: str | None = None) -> str:
        """Path of a collection, an object, or a part of it such as ``status``."""
        space = "" if plural in CLUSTER_WIDE else f"/namespaces/{namespace or self.namespace}"
        return "/".join(filter(None, (f"{GROUPS[plural]}{space}/{plural}", name, part)))

    def get(self, plural: str, name: str, namespace: str | None = None) -> Object:
        """One object; RefusedError 404 where it is not."""
        return self.request("GET", self.path(plural, name, namespace=namespace))

    def find(self, plural: str, name: str, namespace: str | None = None) -> Object | None:
        """One object, or None."""
        try:
            return self.get(plural, name, namespace)
        except RefusedError as refused:
            if refused.code != 404:
                raise
            return None

    def list(self, plural: str, selector: str = "", namespace: str | None = None) -> list[Object]:
        """All objects of a namespace, or those of a label selector."""
        items: list[Object] = self.request(
            "GET", self.path(plural, namespace=namespace), **({"labelSelector": selector} if selector else {})
        )["items"]
        return items

    def create(self, plural: str, body: Mapping[str, Any], namespace: str | None = None, **query: str) -> Object:
        """Create it."""
        return self.request("POST", self.path(plural, namespace=namespace), body, **query)

    def patch(
        self, plural: str, name: str, body: Mapping[str, Any], part: str = "", namespace: str | None = None
    ) -> Object:
        """A merge patch."""
        path = self.path(plural, name, part, namespace)
        return self.request("PATCH", path, body, content="application/merge-patch+json")

    def apply(
        self, plural: str, body: Mapping[str, Any], manager: str = "tests", namespace: str | None = None
    ) -> Object:
        """A server-side apply."""
        path = self.path(plural, body["metadata"]["name"], namespace=namespace)
        content = "application/apply-patch+yaml"
        return self.request("PATCH", path, body, content=content, fieldManager=manager, force="true")

    def delete(
        self, plural: str, name: str, namespace: str | None = None, grace: int | None = None, missing_ok: bool = False
    ) -> None:
        """Ask for its deletion."""
        options = {} if grace is None else {"gracePeriodSeconds": grace}
        try:
            self.request("DELETE", self.path(plural, name, namespace=namespace), options)
        except RefusedError as refused:
            if not (missing_ok and refused.code == 404):
                raise

    def wait(
        self, plural: str, name: str, condition: Callable[[Object], object], timeout: float = 30.0, what: str = ""
    ) -> Object:
        """Wait for an object to be as wanted, and return it."""
        last: Object = {}

        def holds() -> bool:
            nonlocal last
            last = self.find(plural, name) or {}
            return bool(last and condition(last))

        try:
            wait_for(what or f"{plural}/{name}", holds, timeout, every=0.1)
        except TimeoutError as error:
            shown = yaml.safe_dump(last.get("status", last), sort_keys=False)
            raise AssertionError(f"{error}\nlast seen:\n{shown}") from None
        return last


class Kubectl:
    """``kubectl(...)`` returns what it prints; a failure raises RefusedError with what it says."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self.kubeconfig, self.namespace = kubeconfig, namespace

    def __call__(self, *arguments: str, stdin: str | None = None, timeout: float = 60.0) -> str:
        command = [
            str(programs.find("kubectl")),
            "--kubeconfig",
            str(self.kubeconfig),
            "-n",
            self.namespace,
            *arguments,
        ]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout)
        if done.returncode:
            raise RefusedError(done.returncode, done.stderr.strip(), "kubectl")
        return done.stdout
