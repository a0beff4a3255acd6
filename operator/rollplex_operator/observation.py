"""What ``decide`` sees: small projections of the objects, never their bodies, and nothing that moves while it looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class JobView:
    """A RollplexJob as the server has it. ``document`` is the user's part: apiVersion, kind, metadata, spec."""

    uid: str
    namespace: str
    name: str
    generation: int
    resource_version: str
    created: float  # seconds since the epoch, as all times here
    deleting: bool
    document: Mapping[str, Any]
    status: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ContainerView:
    """A rank container. ``exit_code`` is None until it ended; ``restarts`` counts those in place."""

    name: str
    running: bool
    ready: bool
    restarts: int
    waiting_reason: str | None = None  # ImagePullBackOff, CreateContainerConfigError, ...
    waiting_message: str = ""
    exit_code: int | None = None
    finished: float | None = None
    termination_message: str = ""


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod that carries the label of the job's name, whoever owns it."""

    uid: str
    name: str
    owner_uid: str  # of its controller; "" without one
    attempt: int
    index: int  # of its node within the job
    phase: Literal["Pending", "Running", "Succeeded", "Failed", "Unknown"]
    created: float
    node: str | None = None  # the Kubernetes node that it is bound to
    ip: str | None = None
    deleting_since: float | None = None  # when its deletion was asked for (deletionTimestamp - grace)
    grace_seconds: float = 0.0
    gated: bool = False  # held by scheduling gates
    unschedulable: str = ""  # the scheduler's message
    disrupted: str = ""  # reason of condition DisruptionTarget
    reason: str = ""  # status.reason, such as TopologyAffinityError
    message: str = ""
    qos: str = ""  # Guaranteed, Burstable, BestEffort
    containers: tuple[ContainerView, ...] = ()


@dataclass(frozen=True, slots=True)
class ChildView:
    """Another child: service, config map, budget, gang object, claim template."""

    kind: str
    name: str
    uid: str
    owner_uid: str
    attempt: int
    content: str  # value of ANNOTATION_CONTENT
    deleting: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """Pod 0's /status: the pod contract's JSON, as it was at ``read``."""

    read: float
    pod_uid: str
    report: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A write that the server refused, since the last one of that object that it took."""

    kind: str
    name: str
    code: int  # HTTP status
    reason: str  # of the server's Status object
    message: str
    count: int  # times in a row
    at: float  # the last one


@dataclass(frozen=True, slots=True)
class Server:
    """What the API server offers, found by asking it, never by its version."""

    restart_all_containers: bool = False
    native_gang: bool = False
    kueue: bool = False
    coscheduling: bool = False
    volcano: bool = False
    device_classes: frozenset[str] = frozenset()
    schema_fault: str = ""  # what the installed CRD lacks that this operator needs


@dataclass(frozen=True, slots=True)
class Settings:
    """The operator's own settings, by its command line."""

    default_image: str = ""
    image_pull_secrets: tuple[str, ...] = ()
    image_pull_policy: str | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """All that a decision may depend on, but for the time."""

    job: JobView
    pods: tuple[PodView, ...] = ()
    children: tuple[ChildView, ...] = ()
    # Ready by node name; False also where it is gone; a node that was not asked for, or may not be read, is missing
    nodes_ready: Mapping[str, bool] = field(default_factory=dict)
    progress: Progress | None = None
    refusals: tuple[Refusal, ...] = ()
    server: Server = Server()
    settings: Settings = Settings()
    gone: tuple[PodView, ...] = ()  # pods that went since the last decision that was carried out, as last seen
