"""The command line of ``rollplex-operator``; every flag can be given by the environment too."""

from __future__ import annotations

import argparse
import os
import socket
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rollplex_operator.health import Limits
from rollplex_operator.names import FIELD_MANAGER
from rollplex_operator.observation import Settings
from rollplex_operator.watching import INACTIVITY

PREFIX = "ROLLPLEX_OPERATOR_"
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, slots=True)
class Options:
    """``namespaces`` None: all of the cluster. ``home`` is the operator's own namespace."""

    namespaces: tuple[str, ...] | None
    kubeconfig: str | None
    settings: Settings
    port: int
    leader_elect: bool
    home: str
    lease_name: str
    identity: str
    inactivity: float
    limits: Limits
    log_level: str


def parse(arguments: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> Options:
    """Options of this process; SystemExit 2 with a usage line for wrong ones."""
    parser = argparse.ArgumentParser(
        prog="rollplex-operator",
        description="Turns RollplexJobs into pods that train, survive and finish.",
        epilog=f"Each may be given as {PREFIX}<NAME> in the environment; several values are separated by commas.",
    )

    def add(flag: str, text: str, default: str | None = None, **more: object) -> None:
        name = flag.removeprefix("--").replace("-", "_")
        given = environment.get(PREFIX + name.upper(), default)
        parser.add_argument(flag, help=text, default=given, **more)  # type: ignore[arg-type]

    add("--namespace", "serve only this namespace (repeatable)", action="append", metavar="NAME")
    add("--kubeconfig", "path; default: the pod's service account, else KUBECONFIG or ~/.kube/config", metavar="PATH")
    add("--default-image", "trainer image of jobs that name none", "", metavar="IMAGE")
    add("--image-pull-secret", "for jobs that name none (repeatable)", action="append", metavar="NAME")
    add("--image-pull-policy", "of trainer pods", choices=("Always", "IfNotPresent", "Never"))
    add("--port", "of /healthz, /readyz and /metrics", "8080", type=int)
    add(
        "--leader-elect",
        "hold a Lease, so that of several replicas one writes",
        "true",
        action=argparse.BooleanOptionalAction,
    )
    add("--lease-namespace", "default: the operator's own namespace", metavar="NAME")
    add("--lease-name", "name of the Lease", FIELD_MANAGER, metavar="NAME")
    add("--watch-inactivity", "seconds without news after which a watch is begun anew", str(INACTIVITY), type=float)
    add("--watch-limit", "seconds without news of a watch after which /healthz fails", str(Limits().watch), type=float)
    add("--queue-limit", "seconds that a job may wait before /healthz fails", str(Limits().queue), type=float)
    add("--log-level", "of the log", "info", choices=("debug", "info", "warning", "error"))
    given = parser.parse_args(arguments)

    home = given.lease_namespace or _own_namespace(environment)
    if given.watch_limit <= given.watch_inactivity:
        parser.error(
            f"--watch-limit {given.watch_limit:g} must be above --watch-inactivity {given.watch_inactivity:g}: "
            "a silent watch is begun anew before it counts as dead"
        )
    return Options(
        namespaces=_several(given.namespace) or None,
        kubeconfig=given.kubeconfig,
        settings=Settings(given.default_image, _several(given.image_pull_secret), given.image_pull_policy),
        port=given.port,
        leader_elect=given.leader_elect in (True, "true", "1"),
        home=home,
        lease_name=given.lease_name,
        identity=f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}",
        inactivity=given.watch_inactivity,
        limits=Limits(given.watch_limit, given.queue_limit),
        log_level=given.log_level,
    )


def _several(given: str | list[str] | None) -> tuple[str, ...]:
    """Values of a repeatable flag, in order and without repetition."""
    parts = given.split(",") if isinstance(given, str) else given or []
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))


def _own_namespace(environment: Mapping[str, str]) -> str:
    if environment.get("POD_NAMESPACE"):
        return environment["POD_NAMESPACE"]
    return NAMESPACE_FILE.read_text().strip() if NAMESPACE_FILE.exists() else "default"
