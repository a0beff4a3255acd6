"""Complete: pod 0, which has the driver, ended with 0 at the target step."""

from __future__ import annotations

from rollplex_operator.names import Condition, Reason
from rollplex_operator.policies.progress import last_words, whole
from rollplex_operator.turn import Turn


def completion(turn: Turn) -> bool:
    """Condition Complete. The other pods end by themselves, or by the clean-up."""
    driver = next((pod for pod in turn.current if pod.index == 0), None)
    if driver is None or driver.phase != "Succeeded":
        return False
    target = turn.spec.spec.training.steps
    step = reached(turn)
    if step < target:
        return False  # a fault: it ended early
    turn.status.fields["step"] = step
    turn.status.set(Condition.PODS_CREATED, "True", Reason.ALL_CREATED)  # even if that was never looked at
    turn.status.set(Condition.COMPLETE, "True", Reason.TARGET_STEP_REACHED, f"step {step} of {target}")
    turn.status.set(Condition.RUNNING, "False", Reason.TARGET_STEP_REACHED, "the job is complete")
    turn.tell(Reason.TARGET_STEP_REACHED, f"complete at step {step}")
    return False


def reached(turn: Turn) -> int:
    """The step that pod 0 ended at: by its last words, else as it was last read."""
    driver = next((pod for pod in turn.current if pod.index == 0), None)
    said = whole(last_words(driver), "step") if driver is not None else None
    return turn.status.number("step") if said is None else said
