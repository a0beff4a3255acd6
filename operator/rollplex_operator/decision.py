"""What ``decide`` answers. The status is written first; the rest is done only once the server took it.

So whatever an action depends on, such as the attempt that pods belong to, is on the server before the action: killed in
between, the operator goes on where it was, and counts nothing twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an object if it is still the one of this uid. ``grace_seconds`` 0 forces, None leaves it to the object."""

    kind: str
    name: str
    uid: str
    grace_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """An event for ``kubectl describe``."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What to write, in this order; an empty one writes nothing."""

    status: Mapping[str, Any] | None = None  # the whole new status; None: it is right as it is
    notes: tuple[Note, ...] = ()  # sent with a status only
    delete: tuple[Delete, ...] = ()
    apply: tuple[Manifest, ...] = ()  # by server-side apply
    create: tuple[Manifest, ...] = ()  # pods: created, since an apply would write into a dying pod of the same name
    ask_nodes: frozenset[str] = frozenset()  # nodes that the next observation has to know about
    look_again: float | None = None  # seconds from now; None: when something changes

    @property
    def writes(self) -> int:
        """Requests that change something."""
        return (self.status is not None) + len(self.notes) + len(self.delete) + len(self.apply) + len(self.create)
