"""Restarts in place where a kubelet cannot do them: the scheduler keeps pods that ask for them off its node.

Which nodes could take a pod is known to the scheduler alone, so its answer is heeded: where nodes lack a feature, the
pods are made anew without asking for this one, once, and faults are answered with new pods. Nothing ran yet, so no
restart is counted.
"""

from __future__ import annotations

from rollplex_operator.names import Condition, Reason
from rollplex_operator.pods import IN_PLACE_FEATURE, NEW_PODS
from rollplex_operator.policies.reports import place
from rollplex_operator.policies.turn import Turn

# of kube-scheduler's plugin NodeDeclaredFeatures, which does not say which: "2 node(s) didn't match Pod's required
# features". Where it is another, pods that do not ask for this one wait as before
UNMET = "required features"
WHY = (
    f"after a fault new pods are made: there are nodes whose kubelets do not declare {IN_PLACE_FEATURE}; update them "
    "and suspend and resume the job to have its containers restarted in place"
)


def in_place(turn: Turn) -> bool:
    """Begins an attempt without restarts in place where they keep a pod from being placed."""
    status = turn.status
    if status.is_true(Condition.RUNNING) or not turn.resolved.restart_in_place:
        return False
    refused = next((pod for pod in turn.current if UNMET in pod.unschedulable), None)
    if refused is not None and status.is_true(Condition.PODS_CREATED):
        turn.warn(Reason.UNSCHEDULABLE, f"{WHY}; {place(refused)}: {refused.unschedulable}")
        turn.begin_attempt()
        status.fields["restart"] = NEW_PODS
    return False
