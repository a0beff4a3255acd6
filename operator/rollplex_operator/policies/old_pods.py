"""No new pod before the last old one is gone: of an older attempt, of a former job of this name, or given back."""

from __future__ import annotations

from rollplex_operator.children import pod_name
from rollplex_operator.names import Condition, Reason
from rollplex_operator.policies.removal import remove
from rollplex_operator.policies.reports import some
from rollplex_operator.policies.turn import Turn


def old_pods(turn: Turn) -> bool:
    """Sets ``turn.blocked`` while something is in the way of this attempt's pods."""
    if turn.status.is_true(Condition.PODS_CREATED):
        remove(turn, turn.outdated)
        return False
    waiting = [pod.name for pod in turn.outdated]
    waiting += _former_job(turn)
    leaving = [pod for pod in turn.current if pod.deleting_since is not None]
    turn.blocked = bool(waiting or leaving)
    if waiting:
        message = f"{some(waiting)} {'has' if len(waiting) == 1 else 'have'} to go first"
        turn.status.set(Condition.PODS_CREATED, "False", Reason.WAITING_FOR_OLD_PODS, message)
    remove(turn, [*turn.outdated, *leaving])
    return False


def _former_job(turn: Turn) -> list[str]:
    """What another job of this name left behind under the names that are needed; the garbage collector removes it."""
    view = turn.observation.job
    taken = {pod_name(view.name, index) for index in range(turn.nodes)}
    left = [pod.name for pod in turn.observation.pods if pod.owner_uid != view.uid and pod.name in taken]
    # what has our label and no owner is not a former job's: nobody would remove it
    left += [
        f"{child.kind} {child.name}" for child in turn.observation.children if child.owner_uid not in ("", view.uid)
    ]
    return left
