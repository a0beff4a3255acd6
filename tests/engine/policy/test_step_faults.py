"""A fault in a step reaches the caller, leaves the weights, and the next step is as if it had not been."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from rollplex.api.errors import RunStopped
from rollplex.batch import Prompt, Response
from rollplex.memory.gradients import Gradients
from rollplex.memory.optimizer import MasterAdamW
from rollplex.rollout.protocol import Sampling
from rollplex.step.runner import Models, StepRunner
from rollplex.step.timeline import Timeline
from tests.engine.exact.batch import Case, ScriptedRollout, TextIsReward, make_prompts, make_responses
from tests.engine.policy.steps import NO_KL, Setup, assert_unchanged, weights
from tests.engine.tiny import random_policy, tiny_shape


class FaultError(Exception):
    """What a test puts in."""


class Faulty(ScriptedRollout):
    """Raises once in ``where``, after the work; counts what it was asked to abort."""

    def __init__(self, responses: dict[tuple[int, int], Response], where: str = "") -> None:
        super().__init__(responses)
        self.where = where
        self.aborted: list[int] = []

    def _maybe(self, where: str) -> None:
        if where == self.where:
            self.where = ""
            raise FaultError(where)

    def submit(self, step: int, prompts: Sequence[Prompt], group_size: int, sampling: Sampling) -> None:
        assert not self._waiting, "samples of an earlier step are still in the engine"
        super().submit(step, prompts, group_size, sampling)
        self._maybe("submit")

    def step(self) -> list[Response]:
        done = super().step()
        self._maybe("step")
        return done

    def publish(self) -> int:
        self._maybe("publish")
        return super().publish()

    def abort_all(self) -> None:
        self.aborted.append(len(self._waiting))
        super().abort_all()


def outcome(setup: Setup) -> dict[str, torch.Tensor]:
    setup.keep.gradients = {}
    setup.run()
    return dict(setup.keep.gradients)


@pytest.mark.parametrize("mode", ["serial", "stream"])
@pytest.mark.parametrize("where", ["submit", "step"])
def test_after_a_fault_of_the_engine_the_next_step_is_as_if_nothing_had_been(mode: str, where: str) -> None:
    case = Case(kl=0.0, mode=mode, deterministic=True)
    exact = outcome(Setup(case=case))
    rollout = Faulty(make_responses(), where)
    setup = Setup(case=case, rollout=rollout)
    before = weights(setup.actor)
    with pytest.raises(FaultError, match=where):
        setup.run()
    assert rollout.aborted == [16 if where == "submit" else 13]
    assert rollout.unfinished == 0
    assert dict(setup.gradients.items()) == {}
    assert_unchanged(setup.actor, before)
    again = outcome(setup)
    assert again.keys() == exact.keys()
    assert all(torch.equal(again[name], exact[name]) for name in exact)


@pytest.mark.parametrize("method", ["encode", "prefix", "score"])
def test_after_a_fault_of_compute_the_next_step_is_as_if_nothing_had_been(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(kl=0.0, budget=1, deterministic=True)
    exact = outcome(Setup(case=case))
    setup = Setup(case=case, rollout=Faulty(make_responses()))
    calls: list[int] = []
    real: Callable[..., Any] = getattr(setup.actor, method)

    def fail_once(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise FaultError(method)
        return real(*arguments)

    monkeypatch.setattr(setup.actor, method, fail_once)
    with pytest.raises(FaultError):
        setup.run()
    assert dict(setup.gradients.items()) == {}
    again = outcome(setup)
    assert all(torch.equal(again[name], exact[name]) for name in exact)


def test_a_gradient_that_is_not_finite_skips_the_update_and_leaves_weights_and_moments() -> None:
    actor = random_policy(tiny_shape(), seed=0)
    gradients = Gradients(actor.named_parameters())
    spec = NO_KL.job(learningRate=0.1).spec
    before = weights(actor)
    optimizer = MasterAdamW(gradients, spec.training.optimizer)
    models = Models(actor, gradients, optimizer)
    table = actor.language.embedding.word_embeddings.weight
    handle = table.register_hook(lambda gradient: gradient * math.nan)
    runner = StepRunner(spec, models, ScriptedRollout(make_responses()), TextIsReward(), Timeline())
    updated = runner.run(2, make_prompts(actor.shape), Sampling()).updated
    assert (updated.skipped, updated.nonfinite) == (True, True)
    assert math.isnan(updated.grad_norm)
    assert_unchanged(actor, before)
    assert optimizer.steps == 0
    handle.remove()
    updated = runner.run(3, make_prompts(actor.shape), Sampling()).updated
    assert (updated.skipped, updated.nonfinite) == (False, False)
    assert not torch.equal(table, before["language.embedding.word_embeddings.weight"])


def test_broken_parity_stops_the_run_before_the_update() -> None:
    """The double's engine says -1.0 for every token, which the trainer does not; step 1 is always checked."""
    setup = Setup()
    with pytest.raises(RunStopped, match=r"step 1: max \|logp_rollout - logp_trainer\| .* no engine ran \(replay\)"):
        setup.run(step=1)
    assert setup.keep.gradients == {}
    setup.run(step=2)
    assert setup.keep.gradients


def test_a_fault_of_publish_reaches_the_caller() -> None:
    rollout = Faulty(make_responses(), "publish")
    setup = Setup(rollout=rollout)
    with pytest.raises(FaultError, match="publish"):
        setup.run()
    assert rollout.version == 1


def test_a_dropped_step_leaves_the_weights_and_one_whose_update_has_begun_is_finished() -> None:
    """What SIGTERM does: ``check`` raises from some moment on; after the update nothing asks it any more."""
    asked = allowed = 0

    def check() -> None:
        nonlocal asked
        asked += 1
        if asked > allowed:
            raise FaultError

    setup = Setup(check=check)
    before = weights(setup.actor)
    for some in (0, 1, 5):
        asked, allowed = 0, some
        with pytest.raises(FaultError):
            setup.run()
        assert_unchanged(setup.actor, before)
        assert setup.keep.gradients == {}
        assert setup.rollout.unfinished == 0
    asked, allowed = 0, 10**9
    setup.run()
    allowed, asked = asked, 0  # as often as it was asked before the update
    setup.run()
    assert setup.keep.gradients
