"""A tiny policy and its twin in transformers; no engine."""

from __future__ import annotations

from typing import Any

import pytest

from rollplex.api.families import FAMILIES
from rollplex.environment import prepare

prepare()


@pytest.fixture(scope="session", params=FAMILIES)
def tiny_policy(request: pytest.FixtureRequest) -> Any:
    from tests.engine.tiny import random_policy, tiny_shape

    return random_policy(tiny_shape(model_type=request.param), seed=3)


@pytest.fixture(scope="session")
def tiny_twin(tiny_policy: Any) -> Any:
    from tests.engine.tiny import hf_twin

    return hf_twin(tiny_policy)
