"""One rollout engine a model family for the whole session: starting vLLM costs more than all that is asked of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from rollplex.api.families import FAMILIES
from rollplex.environment import prepare

prepare()

if TYPE_CHECKING:  # tests without an engine share this file and should not pay for Megatron-Core
    from rollplex.api.shapes import ModelShape
    from rollplex.policy.policy import Policy
    from rollplex.rollout.engine import RolloutEngine
    from rollplex.weights.share import RolloutWeights


@dataclass
class Rig:
    """A tiny policy and an engine on its weights."""

    folder: Path
    shape: ModelShape
    policy: Policy
    weights: RolloutWeights
    engine: RolloutEngine


@pytest.fixture(scope="session", params=FAMILIES)
def session_rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    from rollplex.rollout.engine import RolloutEngine
    from rollplex.weights.share import share_weights
    from tests.engine.tiny import make_folder, random_policy, tiny_shape

    shape = tiny_shape(model_type=request.param)
    folder = make_folder(tmp_path_factory.mktemp("model"), shape)
    policy = random_policy(shape)
    weights = share_weights(policy.language, policy.visual)
    engine = RolloutEngine(folder, weights, max_model_len=1024, max_num_seqs=16, kv_cache_bytes=4 << 20, seed=7)
    yield Rig(folder, shape, policy, weights, engine)
    engine.close()


@pytest.fixture
def rig(session_rig: Rig) -> Iterator[Rig]:
    """The session's engine, idle and freshly published; weights that a test changes are put back."""
    engine = session_rig.engine
    before = {name: parameter.detach().clone() for name, parameter in session_rig.policy.named_parameters()}
    engine.abort_all()
    engine.publish()
    yield session_rig
    engine.abort_all()
    engine.retire()
    with torch.no_grad():
        for name, parameter in session_rig.policy.named_parameters():
            parameter.copy_(before[name])
