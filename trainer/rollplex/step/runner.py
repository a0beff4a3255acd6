"""One optimizer step: sample, score, learn, publish."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from rollplex.algorithms.base import Advantage, Outcome
from rollplex.algorithms.choose import chosen
from rollplex.algorithms.normalization import batch_scale
from rollplex.api.job import JobSpec
from rollplex.batch import Prompt, Response
from rollplex.memory.gradients import Gradients
from rollplex.memory.optimizer import Optimizer
from rollplex.policy.policy import Policy
from rollplex.reward.pool import Score, refuse_if_all_failed
from rollplex.rollout.protocol import Rollout, Sampling
from rollplex.step.compute import Loss, StepCompute
from rollplex.step.executor import Executor, Rewards, StepState
from rollplex.step.features import FeatureCache
from rollplex.step.plan import plan_step
from rollplex.step.schedule import Schedule
from rollplex.step.timeline import StepTimeline, Timeline
from rollplex.step.work import REFERENCE_MEDIA, SHARED_MEDIA, Kind, StepPlan


@dataclass
class Models:
    """The actor with its gradients and optimizer, and the reference where the KL needs one."""

    actor: Policy
    gradients: Gradients
    optimizer: Optimizer
    reference: Policy | None = None

    @property
    def frozen_tower(self) -> bool:
        """No gradient reaches the vision tower or projector: features stay valid."""
        return not any(parameter.requires_grad for parameter in self.actor.visual.parameters())

    def same_tower(self) -> bool:
        """The reference's tower and projector are the actor's (another folder's need not be)."""
        if self.reference is None:
            return True
        ours, theirs = (dict(policy.visual.named_parameters()) for policy in (self.actor, self.reference))
        return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


@dataclass
class Updated:
    """What the update did; ``scale`` is the batch's denominator, already applied.

    ``skipped``: the weights are as before, since there was nothing to learn from or (``nonfinite``) loss or gradient
    was no number.
    """

    scale: float = 0.0
    grad_norm: float = 0.0
    learning_rate: float = 0.0
    skipped: bool = False
    nonfinite: bool = False


@dataclass
class StepResult:
    """Everything a step leaves behind. Dictionaries are keyed by (group, sample) or group."""

    step: int
    mode: str
    prompts: Sequence[Prompt]
    responses: dict[tuple[int, int], Response]
    scores: dict[tuple[int, int], Score]
    advantages: dict[int, Sequence[float]]
    filtered_groups: int  # that the algorithm took out of its batch
    skipped_groups: int  # that had no loss and cost no further pass
    compute: StepCompute
    updated: Updated
    timeline: StepTimeline
    decode_tokens: int
    weights_version: int  # that everything in this step read


class StepRunner:
    """Runs steps on given models, rollout and rewards; the same code under every schedule."""

    def __init__(
        self,
        spec: JobSpec,
        models: Models,
        rollout: Rollout,
        rewards: Rewards,
        timeline: Timeline,
        *,
        skip: bool = True,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """
        ``skip`` False: groups without a loss are computed all the same (a benchmark measures the work). ``check`` is
        called again and again until the update begins; what it raises gives the step up.
        """
        self._spec = spec
        self._models = models
        self._rollout = rollout
        self._rewards = rewards
        self._timeline = timeline
        self._cache = FeatureCache(limit_bytes=1 << 30)
        self._shared_tower = models.frozen_tower and models.same_tower()
        self._algorithm, self._settings = chosen(spec)
        # zero advantages leave nothing in the loss, unless a KL or a teacher does
        self._skip_zero = skip and self._settings.kl_coefficient == 0 and self._algorithm.scope != "none"
        self._skip = skip
        self._check = check
        self._parity_due = False

    def run(
        self,
        step: int,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        mode: str | None = None,
        *,
        prove_parity: bool = False,
    ) -> StepResult:
        """Run a step; ``mode`` overrides the job's schedule, ``prove_parity`` compares logprobs at any step.

        Raises:
            RunStopped: parity is broken; the weights are still those of the step before.
            RewardError: a part of the reward failed for every sample; likewise.
        """
        spec, models = self._spec, self._models
        plan = self._plan(prompts)
        compute = StepCompute(
            plan, prompts, models.actor, models.reference, self._loss(), spec.training.micro_batch_tokens, self._cache
        )
        executor = Executor(
            plan, self._schedule(mode, len(plan.units)), prompts, compute, self._rollout, self._rewards, self._timeline,
            self._advantages, self._check,
        )  # fmt: skip
        self._parity_due |= prove_parity
        version = self._rollout.version
        updated = Updated()
        models.gradients.clear()
        self._timeline.start()
        try:
            self._rollout.submit(step, prompts, spec.algorithm.group_size, sampling)
            executor.run(partial(self._finish, step, prompts, executor, compute, updated))
        except BaseException:
            self._rollout.abort_all()
            raise
        finally:
            models.gradients.clear()
        state = executor.state
        return StepResult(
            step=step,
            mode=mode or spec.schedule.mode,
            prompts=prompts,
            responses=state.responses,
            scores=state.scores,
            advantages=state.advantages,
            filtered_groups=len(state.filtered),
            skipped_groups=len(state.skipped),
            compute=compute,
            updated=updated,
            timeline=self._timeline.finish(step),
            decode_tokens=executor.decode_tokens,
            weights_version=version,
        )

    def _plan(self, prompts: Sequence[Prompt]) -> StepPlan:
        share = self._spec.schedule.share_prefix
        names = {owner + media.key for p in prompts for media in p.media for owner in (SHARED_MEDIA, REFERENCE_MEDIA)}
        return plan_step(
            prompts,
            self._spec.algorithm.group_size,
            share_prefix=share,
            reference=self._models.reference is not None,
            frozen_tower=self._models.frozen_tower,
            shared_tower=self._shared_tower,
            advantage=self._algorithm.scope,
            skip_zero=self._skip_zero,
            held_media={name for name in names if share and self._cache.get(name) is not None},
        )

    def _loss(self) -> Loss:
        by_rollout = self._spec.algorithm.ratio == "rollout"
        return Loss(self._spec.rollout.temperature, self._algorithm, self._settings, by_rollout)

    def _advantages(self, outcomes: Sequence[Outcome]) -> list[Advantage]:
        found = self._algorithm.advantages(outcomes, self._settings)
        return found if self._skip else [replace(advantage, counts=True) for advantage in found]

    def _schedule(self, mode: str | None, units: int) -> Schedule:
        given = self._spec.schedule
        return Schedule(
            mode=mode or given.mode,
            run_ahead=units if given.run_ahead == "auto" else given.run_ahead,
            pack_tokens=self._spec.training.micro_batch_tokens,
            deterministic=given.deterministic,
        )

    def _finish(
        self,
        step: int,
        prompts: Sequence[Prompt],
        executor: Executor,
        compute: StepCompute,
        updated: Updated,
        kind: Kind,
    ) -> None:
        if kind is Kind.PUBLISH:
            self._rollout.publish()
            return
        every = self._spec.rollout.parity_every_steps
        self._parity_due |= step == 1 or step % every == 0
        if self._parity_due and compute.parity.differences:  # else no token was scored, and the next step is due
            self._parity_due = False
            precision = next(self._models.actor.parameters()).dtype
            compute.parity.enforce(step, precision, prompts, executor.state.responses, self._rollout)
        refuse_if_all_failed(list(executor.state.scores.values()))
        self._rollout.retire()
        self._update(prompts, executor.state, compute.sums.loss, updated)

    def _update(self, prompts: Sequence[Prompt], state: StepState, loss: float, updated: Updated) -> None:
        gradients = self._models.gradients
        lengths = [len(r.token_ids) for (group, _), r in state.responses.items() if group not in state.filtered]
        updated.scale = batch_scale(self._settings.normalization, lengths, self._settings.max_tokens)
        if updated.scale == 0.0:
            updated.skipped = True  # no response has a token, or none counts: there is nothing to learn from
            return
        self._fill_skipped(prompts, state)
        updated.grad_norm = gradients.norm() * updated.scale
        if not (math.isfinite(updated.grad_norm) and math.isfinite(loss)):
            updated.skipped = updated.nonfinite = True
            return
        # as torch.nn.utils.clip_grad_norm_
        clip = min(1.0, self._spec.training.optimizer.max_grad_norm / (updated.grad_norm + 1e-6))
        gradients.scale_(updated.scale * clip)
        updated.learning_rate = self._models.optimizer.step(gradients)

    def _fill_skipped(self, prompts: Sequence[Prompt], state: StepState) -> None:
        """Zeros for what only skipped groups would have reached: AdamW's moments decay as if the passes had run."""
        parts: set[str] = set()
        for group in state.skipped - state.filtered:
            if any(r.token_ids for (owner, _), r in state.responses.items() if owner == group):
                parts |= {"language"} | ({"visual"} if prompts[group].media else set())
        gradients = self._models.gradients
        gradients.fill(name for name in gradients.parameters if name.partition(".")[0] in parts)
