"""Getting rid of pods: asked to end, waited for, and forced only where their node is known to be dead.

A pod of a node that does not answer may still run and write. It is taken out of the API by force only once the server
says that its node is not Ready, or has no such node: then its ranks cannot reach the others either.
"""

from __future__ import annotations

from collections.abc import Iterable

from rollplex_operator.names import Condition, Reason
from rollplex_operator.observation import PodView
from rollplex_operator.policies.reports import place
from rollplex_operator.policies.turn import Turn

ASK_SECONDS = 15.0  # after its grace a pod should be gone: ask for its node
FORCE_SECONDS = 30.0  # after its grace, if the node is dead
ASK_AGAIN_SECONDS = 20.0


def remove(turn: Turn, pods: Iterable[PodView]) -> None:
    """Delete these pods; says in PodsCreated which of their nodes do not answer."""
    lost: list[PodView] = []
    stuck: list[PodView] = []
    for pod in pods:
        turn.delete([pod])
        if pod.deleting_since is None:
            continue
        over = pod.deleting_since + pod.grace_seconds
        if turn.now < over + ASK_SECONDS:
            turn.wake(over + ASK_SECONDS)
            continue
        if pod.node is None:
            stuck.append(pod)  # a finalizer holds it
            continue
        turn.ask_nodes.add(pod.node)
        turn.wake(turn.now + ASK_AGAIN_SECONDS)
        if turn.observation.nodes_ready.get(pod.node, True):
            stuck.append(pod)
            continue
        lost.append(pod)
        if turn.now >= over + FORCE_SECONDS:
            turn.force(pod)
        else:
            turn.wake(over + FORCE_SECONDS)
    if turn.ended or turn.status.is_true(Condition.PODS_CREATED):
        return
    if lost:
        nodes = ", ".join(sorted({str(pod.node) for pod in lost}))
        message = f"{place(lost[0])} does not end, and node {nodes} is not Ready or gone: its pods are forced"
        if turn.status.reason(Condition.PODS_CREATED) != Reason.NODE_LOST:
            turn.warn(Reason.NODE_LOST, message)
        turn.status.set(Condition.PODS_CREATED, "False", Reason.NODE_LOST, message)
    elif stuck:
        message = f"{place(stuck[0])} does not end, though its time is over; look at it with kubectl describe"
        turn.status.set(Condition.PODS_CREATED, "False", Reason.WAITING_FOR_OLD_PODS, message)
