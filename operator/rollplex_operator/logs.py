"""Log lines: one JSON object each, with the job that they are about."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

_about: ContextVar[Mapping[str, Any]] = ContextVar("about", default={})  # noqa: B039 - never changed in place


@contextmanager
def about(**fields: Any) -> Iterator[None]:
    """Every line logged within carries these: namespace, name, uid, attempt."""
    token = _about.set({**_about.get(), **fields})
    try:
        yield
    finally:
        _about.reset(token)


class JsonLines(logging.Formatter):
    """A record as one line of JSON; what ``extra`` gives is in it too."""

    _usual = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_about.get(),
            **{name: value for name, value in vars(record).items() if name not in self._usual},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure(level: str) -> None:
    """Log to standard error. kopf and the client libraries tell every step of theirs: only what went wrong is kept."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for chatty in ("kopf", "asyncio", "aiohttp"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
