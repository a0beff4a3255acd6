"""One policy a module, each a function of the turn. They run in this order; one that answers True ends the turn."""

from __future__ import annotations

from collections.abc import Callable

from rollplex_operator.policies.admission import admission
from rollplex_operator.policies.completion import completion
from rollplex_operator.policies.creation import creation
from rollplex_operator.policies.deadlines import deadlines
from rollplex_operator.policies.in_place import in_place
from rollplex_operator.policies.numa import numa
from rollplex_operator.policies.old_pods import old_pods
from rollplex_operator.policies.progress import progress
from rollplex_operator.policies.queueing import queueing
from rollplex_operator.policies.rejection import rejection
from rollplex_operator.policies.restarts import restarts
from rollplex_operator.policies.running import running
from rollplex_operator.policies.suspension import suspension
from rollplex_operator.policies.turn import Turn

POLICIES: tuple[Callable[[Turn], bool], ...] = (
    admission,
    progress,
    completion,
    suspension,
    rejection,
    restarts,
    in_place,
    old_pods,
    creation,
    queueing,
    running,
    numa,
    deadlines,
)
