"""What the tests of situations share."""

from __future__ import annotations

from typing import Any

from rollplex_operator.observation import PodView, Server
from tests.unit.operator.simulation import Cluster

IN_PLACE = Server(restart_all_containers=True)
QUOTA = (403, 'pods "job-2" is forbidden: exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2')


def started(nodes: int = 2, server: Server | None = None, **policy: Any) -> Cluster:
    """A job whose pods all run."""
    cluster = Cluster(nodes, server, **policy)
    cluster.settle()
    cluster.start()
    cluster.settle()
    assert cluster.phase == "Running"
    return cluster


def reason(cluster: Cluster, kind: str) -> str:
    return str(cluster.condition(kind).get("reason"))


def counters(cluster: Cluster) -> tuple[int, int, int]:
    status = cluster.status
    return status["attempt"], status.get("restarts", 0), status.get("restartsCountedTowardsMax", 0)


def pod_of(cluster: Cluster, **fields: Any) -> PodView:
    """A pod that belongs to somebody else, or to nobody."""
    usual: dict[str, Any] = {"uid": "other", "name": "job-0", "owner_uid": "former", "attempt": 0, "index": 0}
    return PodView(**{**usual, "phase": "Running", "created": cluster.now, "node": "node-0", **fields})


def again(cluster: Cluster) -> None:
    """The old pods end, the new ones run."""
    cluster.settle()
    cluster.finish_deletions()
    cluster.settle()
    cluster.start()
    cluster.settle()
