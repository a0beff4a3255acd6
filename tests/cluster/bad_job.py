"""A job that is wrong in one place, and who says what about it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from rollplex.api.document import with_overrides

SMALLEST: dict[str, Any] = {
    "apiVersion": "rollplex.io/v1alpha1",
    "kind": "RollplexJob",
    "metadata": {"name": "small"},
    "spec": {
        "model": {"path": "/models/m"},
        "data": {"train": "/data/train.jsonl"},
        "reward": [{"name": "exact"}],
        "training": {"steps": 3},
    },
}
ON_CLUSTER = (
    "checkpoint.path=/checkpoints/small",
    "volumes=[{claim: m, path: /models, readOnly: true}, {claim: d, path: /data}, {claim: c, path: /checkpoints}]",
)
SAME = "the same"  # the API server's words are those of rollplex validate
OPERATOR = "the operator"  # the API server takes it; condition Admitted becomes False, reason InvalidSpec


@dataclass(frozen=True, slots=True)
class Bad:
    """A change to the smallest job (``--set``), and what is said of it at ``spec.`` ``path``."""

    change: str | tuple[str, ...]
    path: str
    says: str
    context: str = "job"  # or ranks (8 of them), or cluster
    server: str = SAME

    @property
    def id(self) -> str:
        """For pytest."""
        return " ".join(self.changes)[:60]

    @property
    def changes(self) -> tuple[str, ...]:
        """One override or several."""
        return (self.change,) if isinstance(self.change, str) else self.change

    def document(self, *, cluster: bool = False) -> dict[str, Any]:
        """The bad job; ``cluster``: with all that any job needs on the cluster."""
        base = ON_CLUSTER if cluster or self.context == "cluster" else ()
        return with_overrides(SMALLEST, [*base, *self.changes])

    @property
    def words(self) -> str:
        """What the API server says."""
        return self.says if self.server == SAME else self.server

    @property
    def place(self) -> str:
        """The path as the API server writes it."""
        return "spec." + re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", self.path)
