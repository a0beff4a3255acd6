"""Whole steps on the tiny policy: edge responses, faults and what comes after them, weights that change in between."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from rollplex.api.errors import RunStopped
from rollplex.batch import Prompt, Response
from rollplex.memory.gradients import Gradients
from rollplex.memory.optimizer import MasterAdamW, Optimizer
from rollplex.policy.policy import Policy
from rollplex.rollout.protocol import Sampling
from rollplex.step.metrics import step_metrics
from rollplex.step.runner import Models, StepResult, StepRunner
from rollplex.step.timeline import Timeline, Yardstick
from tests.engine.exact.batch import GROUP, LENGTHS, Case, ScriptedRollout, TextIsReward, make_prompts, make_responses
from tests.engine.exact.harness import Keep, gradients_by_hf_name, run_step
from tests.engine.exact.reference import grpo_by_hand, relative_errors
from tests.engine.policy.passes import gradients_of, group_of
from tests.engine.tiny import hf_logprobs, hf_twin, random_policy, text, tiny_shape

NO_KL = Case(kl=0.0)


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


@dataclass
class Setup:
    """A runner whose optimizer keeps the gradients, or is the one given."""

    actor: Policy = field(default_factory=lambda: random_policy(tiny_shape(), seed=0))
    reference: Policy | None = None
    case: Case = NO_KL
    rollout: ScriptedRollout = field(default_factory=lambda: ScriptedRollout(make_responses()))
    optimizer: Optimizer | None = None
    prompts: list[Prompt] = field(default_factory=lambda: make_prompts(tiny_shape()))
    group_size: int = GROUP

    def __post_init__(self) -> None:
        self.keep = Keep()
        self.gradients = Gradients(self.actor.named_parameters())
        models = Models(self.actor, self.gradients, self.optimizer or self.keep, self.reference)
        spec = self.case.job().spec
        algorithm = spec.algorithm.model_copy(update={"group_size": self.group_size})
        spec = spec.model_copy(update={"algorithm": algorithm})
        self.runner = StepRunner(spec, models, self.rollout, TextIsReward(), Timeline())

    def run(self, step: int = 2) -> StepResult:
        return self.runner.run(step, self.prompts, Sampling())


def weights(policy: Policy) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in policy.named_parameters()}


def assert_unchanged(policy: Policy, before: dict[str, torch.Tensor]) -> None:
    for name, parameter in policy.named_parameters():
        assert torch.equal(parameter, before[name]), name


# --- edge responses


@pytest.mark.parametrize("normalization", ["token", "sequence"])
def test_an_empty_response_counts_with_its_reward(tiny_policy: Policy, tiny_twin: Any, normalization: str) -> None:
    """Responses [[], [5, 6]] with rewards [10, 0]: the peer's advantage is -1/sqrt(2), and it has all the tokens."""
    items = make_prompts(tiny_policy.shape)[:1]
    given = {
        (0, 0): Response(0, 0, (), (), "stop", text="10"),
        (0, 1): Response(0, 1, (5, 6), (-1.0, -1.0), "length", text="0"),
    }
    case, rollout = Case(kl=0.0, normalization=normalization), ScriptedRollout(given)
    setup = Setup(tiny_policy, case=case, rollout=rollout, prompts=items, group_size=2)
    result = setup.run()
    setup.gradients.close()
    assert result.advantages[0] == pytest.approx([1 / math.sqrt(2), -1 / math.sqrt(2)], rel=1e-5)
    # the loss is -A = 1/sqrt(2) at both tokens: a mean over tokens, or over two responses of which one has none
    assert result.compute.sums.loss * result.updated.scale == pytest.approx(
        {"token": 1, "sequence": 0.5}[normalization] / math.sqrt(2), rel=1e-5
    )
    exact = grpo_by_hand(tiny_twin, None, items, given, [[10.0, 0.0]], normalization=normalization, kl=0.0)
    ours = gradients_by_hf_name(tiny_policy, setup.keep.gradients)
    assert max(relative_errors(ours, exact.gradients).values()) < 1e-5
    metrics = step_metrics(result, Yardstick())
    assert metrics["response/tokens_mean"] == 1.0
    assert metrics["reward/mean"] == 5.0
    assert metrics["update/skipped"] == 0


@pytest.mark.parametrize("mode", ["serial", "overlap", "stream"])
@pytest.mark.parametrize("share", [True, False])
def test_a_step_without_a_token_is_skipped_and_counted(mode: str, share: bool) -> None:
    if not share and mode != "serial":
        return
    responses = make_responses([[0] * 4] * len(LENGTHS))
    reference = random_policy(tiny_shape(), seed=1).requires_grad_(False)
    setup = Setup(reference=reference, case=Case(mode=mode, share=share), rollout=ScriptedRollout(responses))
    before = weights(setup.actor)
    result = setup.run()
    assert result.updated.skipped
    assert setup.keep.gradients == {}
    assert_unchanged(setup.actor, before)
    metrics = step_metrics(result, Yardstick())
    assert metrics["update/skipped"] == 1
    assert metrics["loss"] == metrics["grad/norm"] == metrics["response/tokens_max"] == metrics["kl/mean"] == 0.0
    assert metrics["parity/max"] is None
    assert all(math.isfinite(value) for value in metrics.values() if isinstance(value, int | float))
    assert result.weights_version == 1
    assert setup.rollout.version == 2


def test_a_response_of_one_token_trains_on_it(tiny_policy: Policy) -> None:
    responses = make_responses([[1] * 4] * len(LENGTHS))
    result, gradients = run_step(tiny_policy, None, NO_KL, responses=responses)
    assert result.compute.sums.tokens == 16
    assert all(gradient.abs().sum() > 0 for gradient in gradients.values())


# --- faults


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


def test_a_gradient_that_is_not_finite_stops_the_run_and_leaves_the_weights() -> None:
    actor = random_policy(tiny_shape(), seed=0)
    gradients = Gradients(actor.named_parameters())
    spec = NO_KL.job(learningRate=0.1).spec
    before = weights(actor)
    models = Models(actor, gradients, MasterAdamW(gradients, spec.training.optimizer))
    table = actor.language.embedding.word_embeddings.weight
    handle = table.register_hook(lambda gradient: gradient * math.nan)
    runner = StepRunner(spec, models, ScriptedRollout(make_responses()), TextIsReward(), Timeline())
    with pytest.raises(RunStopped, match="step 2: the gradient norm is nan; the update was not applied"):
        runner.run(2, make_prompts(actor.shape), Sampling())
    assert_unchanged(actor, before)
    handle.remove()
    runner.run(3, make_prompts(actor.shape), Sampling())
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


# --- weights that change between steps


def assert_follows(setup: Setup, result: StepResult) -> None:
    """The step's log probabilities are those of the weights as they are now."""
    twin = hf_twin(setup.actor)
    for (group, sample), difference in result.compute.parity.differences.items():
        exact = hf_logprobs(twin, setup.prompts[group], result.responses[group, sample].token_ids, 1.0)
        assert torch.allclose(difference, (-1.0 - exact).abs(), atol=1e-4), (group, sample)


LAYERS = [
    "language.decoder.layers.0.self_attention.linear_qkv.weight",
    "visual.blocks.0.attn.qkv.weight",
    "visual.merger.mlp.2.weight",
]


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_scaled_between_steps_is_followed(name: str) -> None:
    """Boundary KV and features of the same prompts are computed anew."""
    setup = Setup()
    first = setup.run()
    with torch.no_grad():
        setup.actor.get_parameter(name).mul_(10.0)
    second = setup.run(3)
    assert_follows(setup, second)
    assert second.compute.sums.passes == first.compute.sums.passes
    changed = [
        not torch.allclose(difference, first.compute.parity.differences[key], atol=1e-2)
        for key, difference in second.compute.parity.differences.items()
    ]
    assert any(changed)


def test_features_are_kept_across_steps_only_where_the_tower_is_frozen() -> None:
    prompts = make_prompts(tiny_shape())
    tokens = sum({media.key: media.tokens(2) for prompt in prompts for media in prompt.media}.values())

    def encoded(*frozen: str, other_reference: bool = False) -> list[int]:
        actor = random_policy(tiny_shape(), seed=0)
        actor.freeze(frozen)
        reference = random_policy(tiny_shape(), seed=1 if other_reference else 0).requires_grad_(False)
        setup = Setup(actor, reference, Case())
        return [setup.run(step).compute.sums.passes["vision"] for step in (2, 3)]

    assert encoded() == [2 * tokens, tokens], "the reference's are kept, the actor's are encoded anew"
    assert encoded("vision") == [2 * tokens, tokens], "the projector changes them"
    assert encoded("vision", "projector") == [tokens, 0], "one set for both models"
    assert encoded("vision", "projector", other_reference=True) == [2 * tokens, tokens], "the towers differ"


def test_a_frozen_tower_is_not_taken_for_that_of_another_reference() -> None:
    """The reference sees with its own tower, frozen or not: the KL says so."""

    def kl(*frozen: str) -> float:
        actor = random_policy(tiny_shape(), seed=0)
        actor.freeze(frozen)
        result = Setup(actor, random_policy(tiny_shape(), seed=1).requires_grad_(False), Case()).run()
        return result.compute.sums.kl / result.compute.sums.tokens

    assert kl("vision", "projector") == pytest.approx(kl(), rel=1e-5)


def test_the_boundary_of_a_prompt_follows_its_layer(tiny_policy: Policy) -> None:
    """No key of a prompt hides the weights' version: the same prompt object gives other KV."""
    item = make_prompts(tiny_policy.shape)[0]

    def keys() -> tuple[torch.Tensor, torch.Tensor]:
        boundary = tiny_policy.prefix(item, [tiny_policy.encode(media) for media in item.media])
        assert boundary is not None
        return boundary.layer(0)[0].detach(), boundary.layer(1)[0].detach()

    before = keys()
    weight = tiny_policy.language.decoder.layers[0].mlp.linear_fc2.weight
    with torch.no_grad():
        weight.mul_(10.0)
    after = keys()
    with torch.no_grad():
        weight.div_(10.0)
    assert torch.equal(before[0], after[0]), "layer 0's keys come before its MLP"
    assert not torch.allclose(before[1], after[1], atol=1e-2)


def test_text_alone_under_a_frozen_language_model_has_nothing_to_train() -> None:
    """Its loss has no gradient; the other groups' have."""
    actor = random_policy(tiny_shape(), seed=0)
    actor.freeze(["language"])
    item = make_prompts(actor.shape)[2]
    with pytest.raises(RuntimeError, match="does not require grad"):
        gradients_of(actor, [group_of(0, item, text(3, 1))])
    setup = Setup(actor)
    setup.run()
    assert setup.keep.gradients
    assert {name.split(".")[0] for name in setup.keep.gradients} == {"visual"}
