"""One policy a module, each a function of the turn; they run in this order, and one that answers True ends the turn."""

from __future__ import annotations

from collections.abc import Callable

from rollplex_operator.policies.admission import admission
from rollplex_operator.policies.completion import completion
from rollplex_operator.policies.creation import creation
from rollplex_operator.policies.deadlines import deadlines
from rollplex_operator.policies.faults import faults
from rollplex_operator.policies.finished import finished
from rollplex_operator.policies.numa import numa
from rollplex_operator.policies.old_pods import old_pods
from rollplex_operator.policies.progress import progress
from rollplex_operator.policies.rejection import rejection
from rollplex_operator.policies.running import running
from rollplex_operator.policies.suspension import suspension
from rollplex_operator.turn import Turn

POLICIES: tuple[Callable[[Turn], bool], ...] = (
    progress,
    admission,
    finished,
    completion,
    finished,  # what is complete now
    suspension,
    rejection,
    faults,
    finished,  # what has failed now
    old_pods,
    creation,
    running,
    numa,
    deadlines,
    finished,
)
