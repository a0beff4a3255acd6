"""What no test may do: fill the cache of whoever runs the tests, or find something in it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One cache of decoded media for the session, that of commands which tests start too."""
    before = os.environ.get("ROLLPLEX_CACHE")
    os.environ["ROLLPLEX_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["ROLLPLEX_CACHE"]
    else:
        os.environ["ROLLPLEX_CACHE"] = before
