"""Kubernetes' times: RFC 3339 on the server, seconds since the epoch in here."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any


def timestamp(seconds: float) -> str:
    """RFC 3339 in whole seconds, as Kubernetes writes times."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(text: Any) -> float | None:
    """Seconds since the epoch of a timestamp; None where there is none."""
    if not isinstance(text, str):
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
