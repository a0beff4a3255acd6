"""Held-out scores: pass@k by counting, and who is asked what."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import pytest
import torch

from rollplex.api.output import EvaluationSpec
from rollplex.api.reward import RewardSpec
from rollplex.batch import Media, Prompt, Response
from rollplex.evaluation import blanked, evaluate, is_due, pass_at
from rollplex.reward.pool import RewardError, RewardPool
from rollplex.rollout.protocol import Sampling
from rollplex.telemetry.keys import row


@pytest.mark.parametrize("samples", [1, 2, 5, 8])
def test_pass_at_counts_the_subsets_with_a_pass(samples: int) -> None:
    for passed in range(samples + 1):
        for k in range(1, samples + 1):
            subsets = list(combinations(range(samples), k))
            assert pass_at(k, samples, passed) == pytest.approx(sum(s[0] < passed for s in subsets) / len(subsets))


def test_pass_at_does_not_overflow() -> None:
    assert pass_at(64, 1024, 1) == pytest.approx(64 / 1024)


@pytest.mark.parametrize(("step", "due"), [(1, False), (4, True), (6, False), (8, True), (9, True)])
def test_evaluation_is_due_every_so_many_steps_and_after_the_last(step: int, due: bool) -> None:
    assert is_due(EvaluationSpec(data="v.jsonl", every_steps=4), step, last_step=9) is due


class Parrot:
    """A rollout that answers sample i of prompt p with word (p, i) of its script, last sample first."""

    stalled = version = decode_batch = decode_tokens = prefill_tokens = 0

    def __init__(self, sampled: Sequence[Sequence[str]], greedy: Sequence[str]) -> None:
        self._sampled, self._greedy = sampled, greedy
        self._waiting: list[Response] = []
        self.asked: list[tuple[int, int, bool, bool]] = []  # step, samples, greedy, blank

    @property
    def unfinished(self) -> int:
        return len(self._waiting)

    def submit(self, step: int, prompts: Sequence[Prompt], group_size: int, sampling: Sampling) -> None:
        blank = not any(media.patches.any() for prompt in prompts for media in prompt.media)
        self.asked.append((step, group_size, sampling.greedy, blank))
        for p in range(len(prompts)):
            for i in range(group_size):
                text = self._greedy[p] if sampling.greedy else "blind" if blank else self._sampled[p][i]
                self._waiting.append(Response(p, i, (1, 2), (-1.0, -1.0), "stop", 2, text))

    def step(self) -> list[Response]:
        return [self._waiting.pop()]

    def abort_all(self) -> None:
        self._waiting = []

    def retire(self) -> None:
        raise AssertionError("evaluation changes no weights")

    def publish(self) -> int:
        raise AssertionError("evaluation changes no weights")

    def positions(self, prompt: Prompt) -> torch.Tensor | None:
        return None

    def close(self) -> None:
        self._waiting = []


def prompt(name: str, answer: object) -> Prompt:
    media = Media("image", torch.ones(4, 3), (1, 2, 2))
    return Prompt(name, (5, 6, 7), torch.arange(3).expand(3, -1), (media,), ((1,),), answer)


SAMPLED = [["red", "blue", "red", "blue"], ["no", "no", "no", "no"], ["ok", "ok", "ok", "ok"]]
PROMPTS = [prompt("a", "red"), prompt("b", "yes"), prompt("c", "ok")]


def test_evaluate_scores_sampled_greedy_and_blank() -> None:
    rollout = Parrot(SAMPLED, greedy=["red", "yes", "no"])
    spec = EvaluationSpec(data="v.jsonl", samples=4, blank_frames=True)
    metrics = evaluate(rollout, RewardPool([RewardSpec(name="exact")], 1), PROMPTS, spec, Sampling())
    assert metrics == {
        "eval/reward/mean": 0.5,
        "eval/greedy/reward/mean": pytest.approx(2 / 3),
        "eval/pass@1": 0.5,
        "eval/pass@2": pytest.approx((5 / 6 + 0 + 1) / 3),
        "eval/pass@4": pytest.approx(2 / 3),
        "eval/blank/reward/mean": 0.0,
    }
    assert rollout.asked == [(0, 4, False, False), (0, 1, True, False), (0, 4, False, True)]
    assert len(row({"step": 1, **metrics})) == 7  # all of them documented


def test_evaluate_asks_for_nothing_that_the_job_does_not_want() -> None:
    rollout = Parrot(SAMPLED, greedy=[])
    spec = EvaluationSpec(data="v.jsonl", samples=1, greedy=False, pass_reward=3.0)
    metrics = evaluate(rollout, RewardPool([RewardSpec(name="exact", weight=3.0)], 1), PROMPTS, spec, Sampling())
    assert metrics == {"eval/reward/mean": 2.0, "eval/pass@1": pytest.approx(2 / 3)}
    assert rollout.asked == [(0, 1, False, False)]


def test_evaluate_refuses_a_reward_that_always_fails() -> None:
    rollout = Parrot(SAMPLED, greedy=["", "", ""])
    with pytest.raises(RewardError, match=r"numeric failed for all 12 .* answer '\w+' has no number"):
        evaluate(
            rollout, RewardPool([RewardSpec(name="numeric")], 1), PROMPTS, EvaluationSpec(data="v.jsonl"), Sampling()
        )


def test_blanked_prompt_keeps_its_tokens_and_loses_its_key() -> None:
    without = blanked(PROMPTS[0])
    assert without.token_ids == PROMPTS[0].token_ids
    assert not without.media[0].patches.any()
    assert without.key != PROMPTS[0].key
