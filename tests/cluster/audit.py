"""What the API server records of writes: who wrote what, with which answer."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

# Every write of an operator: the file is turned over at 100 MB, and what tests do themselves would fill it
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "verbs": ["get", "list", "watch"]},
        {"level": "None", "users": ["admin", "controllers", "scheduler"]},
        {"level": "Metadata"},
    ],
}


class AuditLog:
    """The server's record of writes, read on from where it was read before."""

    def __init__(self, file: Path) -> None:
        self._file, self._read, self._lock = file, 0, threading.Lock()
        self._by_user: dict[str, list[dict[str, Any]]] = defaultdict(list)

    def of(self, user: str) -> list[dict[str, Any]]:
        """All writes of a user until now."""
        with self._lock, self._file.open("rb") as log:
            log.seek(self._read)
            for line in log:
                if not line.endswith(b"\n"):
                    break  # it is being written
                self._read += len(line)
                write = json.loads(line)
                self._by_user[write["user"]["username"]].append(write)
            return list(self._by_user[user])
