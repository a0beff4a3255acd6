"""When the job has reached its target: its driver, in pod 0, ended 0 and the last committed step is the target."""

from __future__ import annotations

from rollplex_operator.names import EXIT_COMPLETE, Condition, Reason
from rollplex_operator.policies.reports import driver, ranks, report_of, step_of
from rollplex_operator.policies.turn import Turn

# the others' supervisors learn from the driver that it is over; how they end then does not matter any more
OTHERS_SECONDS = 10.0


def completion(turn: Turn) -> bool:
    """Complete once the driver ended at the target and the other pods ended, or had their time to."""
    if turn.job is None:
        return False
    target, attempt = turn.job.spec.training.steps, turn.status.attempt
    for pod in [*turn.own, *turn.gone]:
        container = driver(pod)
        if container is None or container.exit_code != EXIT_COMPLETE:
            continue
        step = step_of(report_of(container))
        if step is None and pod.attempt == attempt:
            step = turn.status.number("step")  # its last words are lost: what it said before
        if step is None or step < target:
            continue
        until = (container.finished or 0.0) + OTHERS_SECONDS
        if turn.now < until and not _all_ended(turn):
            turn.wake(until)
            return True  # nothing else is decided: the others may end as they like
        turn.status.fields["step"] = step
        turn.status.set(Condition.PODS_CREATED, "True", Reason.ALL_CREATED)  # even if nobody looked then
        turn.complete(f"step {step} of {target}")
        return True
    return False


def _all_ended(turn: Turn) -> bool:
    return all(container.exit_code is not None for pod in turn.own for container in ranks(pod))
