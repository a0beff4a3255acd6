"""Groups of equal rewards without a KL: they cost nothing more, and change no number of the update."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from rollplex.api.errors import RunStopped
from rollplex.batch import Prompt, Response
from rollplex.memory.gradients import Gradients
from rollplex.memory.optimizer import MasterAdamW
from rollplex.rollout.protocol import Sampling
from rollplex.step.metrics import step_metrics
from rollplex.step.runner import Models, StepResult, StepRunner
from rollplex.step.timeline import Timeline, Yardstick
from tests.engine.exact.batch import LENGTHS, Case, ScriptedRollout, TextIsReward, make_prompts, make_responses
from tests.engine.policy.steps import Setup, assert_unchanged, weights
from tests.engine.tiny import random_policy, tiny_shape

TEXT = 2  # the one group of the exactness batch without media
Rewards = dict[int, list[float]]
EQUAL: Rewards = {group: [0.5] * 4 for group in range(4)}


def with_rewards(rewards: Rewards) -> dict[tuple[int, int], Response]:
    """The exactness batch's responses, with other rewards for some groups."""
    return {
        (group, sample): replace(response, text=str(rewards[group][sample])) if group in rewards else response
        for (group, sample), response in make_responses().items()
    }


def setup_of(case: Case, rewards: Rewards) -> Setup:
    return Setup(case=case, rollout=ScriptedRollout(with_rewards(rewards)))


@pytest.mark.parametrize("mode", ["serial", "overlap", "stream"])
def test_a_batch_of_equal_rewards_costs_no_suffix_and_no_backward(mode: str) -> None:
    setup = setup_of(Case(mode=mode, kl=0.0), EQUAL)
    result = setup.run()
    passes = result.compute.sums.passes
    assert passes["suffix"] == 0
    if mode == "serial":  # under the other schedules prefixes may have run before the rewards came
        assert passes == {"prefix": 0, "suffix": 0, "vision": 0}
    # what was made for them is let go at once
    assert result.compute._actor_prefix == {}
    assert result.compute._features == {}
    kinds = {event.kind for event in result.timeline.lane("compute")}
    assert not kinds & {"actor_suffix", "prefix_backward", "encode_backward"}
    metrics = step_metrics(result, Yardstick())
    assert metrics["groups/skipped"] == 4
    assert metrics["groups/filtered"] == 0
    assert metrics["entropy/mean"] is None
    assert metrics["parity/max"] is None
    assert metrics["loss"] == metrics["grad/norm"] == 0.0
    # grpo keeps them in its batch: an update with a gradient of zero, in which AdamW's moments decay
    assert metrics["update/skipped"] == 0
    assert setup.keep.gradients.keys() == setup.gradients.parameters.keys()
    assert not any(gradient.any() for gradient in setup.keep.gradients.values())


@pytest.mark.parametrize("mode", ["serial", "stream"])
def test_dapo_has_no_update_where_every_group_is_filtered(mode: str) -> None:
    setup = setup_of(Case(mode=mode, algorithm={"name": "dapo", "kl": {"coefficient": 0.0}}), EQUAL)
    before = weights(setup.actor)
    metrics = step_metrics(setup.run(), Yardstick())
    assert (metrics["groups/skipped"], metrics["groups/filtered"], metrics["update/skipped"]) == (4, 4, 1)
    assert setup.keep.gradients == {}
    assert_unchanged(setup.actor, before)


@pytest.mark.parametrize("name", ["grpo", "dapo"])
def test_a_filtered_group_has_no_kl_and_a_kept_one_has(name: str) -> None:
    """With a KL only dapo leaves equal rewards out: its batch does not have them."""
    reference = random_policy(tiny_shape(), seed=1).requires_grad_(False)
    rewards = {group: [0.5] * 4 for group in (0, 1)}
    setup = Setup(
        reference=reference,
        case=Case(mode="serial", kl=0.3, algorithm={"name": name, "overlong": None}),
        rollout=ScriptedRollout(with_rewards(rewards)),
    )
    result = setup.run()
    scored = sum(sum(row) for group, row in enumerate(LENGTHS) if name == "grpo" or group not in rewards)
    assert result.compute.sums.tokens == scored
    assert result.compute.sums.passes["suffix"] == 2 * scored  # by actor and reference
    assert result.compute._reference_logps == {}
    assert result.compute._reference_prefix == {}
    assert result.skipped_groups == (2 if name == "dapo" else 0)


def updated(skip: bool, mode: str, rewards: list[Rewards]) -> tuple[list[StepResult], dict[str, torch.Tensor]]:
    """Weights after one AdamW update for each entry of ``rewards``, with or without leaving anything out."""
    actor = random_policy(tiny_shape(), seed=50)
    gradients = Gradients(actor.named_parameters())
    spec = Case(mode=mode, kl=0.0, deterministic=True).job(learningRate=1e-3, weightDecay=0.01).spec
    models = Models(actor, gradients, MasterAdamW(gradients, spec.training.optimizer))
    results = []
    prompts = make_prompts(actor.shape)
    runner = StepRunner(spec, models, ByStep(rewards), TextIsReward(), Timeline(), skip=skip)
    for step in range(2, 2 + len(rewards)):
        results.append(runner.run(step, prompts, Sampling()))
    return results, weights(actor)


class ByStep(ScriptedRollout):
    """Other rewards in each step."""

    def __init__(self, rewards: list[Rewards], first: int = 2) -> None:
        super().__init__({})
        self._by_step = dict(enumerate(rewards, start=first))

    def submit(self, step: int, prompts: Any, group_size: int, sampling: Sampling) -> None:
        self._responses = with_rewards(self._by_step[step])
        super().submit(step, prompts, group_size, sampling)


ONLY_TEXT: Rewards = {group: [0.5] * 4 for group in range(4) if group != TEXT}


@pytest.mark.parametrize("mode", ["serial", "overlap", "stream"])
def test_leaving_out_changes_no_weight(mode: str) -> None:
    """In the second step only the text has something to learn, in the third nothing: the tower moves by its momentum.

    Without the zeros of the passes that did not run AdamW would let the tower stand still.
    """
    steps: list[Rewards] = [{}, ONLY_TEXT, EQUAL]
    results, left_out = updated(True, mode, steps)
    everything, computed = updated(False, mode, steps)
    assert [result.skipped_groups for result in results] == [0, 3, 4]
    assert [result.skipped_groups for result in everything] == [0, 0, 0]
    assert results[1].compute.sums.passes["suffix"] == sum(LENGTHS[TEXT])
    assert everything[1].compute.sums.passes["suffix"] == sum(map(sum, LENGTHS))
    for name, exact in computed.items():
        assert torch.allclose(left_out[name], exact, rtol=1e-5, atol=1e-7), name


@pytest.mark.parametrize("mode", ["serial", "overlap", "stream"])
def test_the_same_bits_whatever_turns_out_idle_when(mode: str) -> None:
    """The last group, which reads the first one's video, has nothing to learn; its rewards come early or late."""
    found = []
    for order in range(6):
        case = Case(mode=mode, kl=0.0, deterministic=True)
        setup = Setup(case=case, rollout=ScriptedRollout(with_rewards({3: [0.5] * 4}), order))
        assert setup.run().skipped_groups == 1
        found.append(setup.keep.gradients)
    for other in found[1:]:
        assert all(torch.equal(found[0][name], other[name]) for name in found[0])


def test_a_parity_check_that_found_nothing_to_compare_is_made_in_the_next_step() -> None:
    """The double's engine says -1.0 for every token, which the trainer does not; step 1 is always checked."""
    setup = Setup(case=Case(kl=0.0), rollout=ByStep([EQUAL, EQUAL, {}, {}], first=1))
    setup.run(step=1)
    setup.run(step=2)
    with pytest.raises(RunStopped, match="step 3: max"):
        setup.run(step=3)
    setup.run(step=4)


def test_prompts_of_the_batch_are_as_these_tests_take_them() -> None:
    prompts: list[Prompt] = make_prompts(tiny_shape())
    assert [bool(prompt.media) for prompt in prompts] == [True, True, False, True]
