"""Steps with edge responses: empty ones, all empty, single tokens, nothing to train."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rollplex.batch import Response
from rollplex.policy.policy import Policy
from rollplex.step.metrics import step_metrics
from rollplex.step.timeline import Yardstick
from tests.engine.exact.batch import LENGTHS, Case, ScriptedRollout, make_prompts, make_responses
from tests.engine.exact.harness import gradients_by_hf_name, run_step
from tests.engine.exact.reference import grpo_by_hand, relative_errors
from tests.engine.policy.passes import gradients_of, group_of
from tests.engine.policy.steps import NO_KL, Setup, assert_unchanged, weights
from tests.engine.tiny import random_policy, text, tiny_shape


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
