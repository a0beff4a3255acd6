"""One optimizer step: sample, score, learn, publish."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from rollplex.algorithms.grpo import group_advantages
from rollplex.algorithms.normalization import batch_scale
from rollplex.api.errors import RunStopped
from rollplex.api.job import JobSpec
from rollplex.batch import Prompt, Response
from rollplex.memory.gradients import Gradients
from rollplex.memory.optimizer import Optimizer
from rollplex.policy.policy import Policy
from rollplex.reward.pool import Score
from rollplex.rollout.protocol import Rollout, Sampling
from rollplex.step.compute import Loss, StepCompute
from rollplex.step.executor import Executor, Rewards
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
    """What the update did; ``scale`` is the batch's denominator, already applied. 0 tokens: the update was skipped."""

    scale: float = 0.0
    grad_norm: float = 0.0
    learning_rate: float = 0.0
    skipped: bool = False


@dataclass
class StepResult:
    """Everything a step leaves behind. Dictionaries are keyed by (group, sample) or group."""

    step: int
    mode: str
    prompts: Sequence[Prompt]
    responses: dict[tuple[int, int], Response]
    scores: dict[tuple[int, int], Score]
    advantages: dict[int, Sequence[float]]
    compute: StepCompute
    updated: Updated
    timeline: StepTimeline
    decode_tokens: int
    weights_version: int  # that everything in this step read


class StepRunner:
    """Runs steps on given models, rollout and rewards; the same code under every schedule."""

    def __init__(self, spec: JobSpec, models: Models, rollout: Rollout, rewards: Rewards, timeline: Timeline) -> None:
        self._spec = spec
        self._models = models
        self._rollout = rollout
        self._rewards = rewards
        self._timeline = timeline
        self._cache = FeatureCache(limit_bytes=1 << 30)
        self._shared_tower = models.frozen_tower and models.same_tower()

    def run(self, step: int, prompts: Sequence[Prompt], sampling: Sampling, mode: str | None = None) -> StepResult:
        """Run a step; ``mode`` overrides the job's schedule.

        Raises:
            RunStopped: parity is broken or a gradient is not finite; the weights are still those of the step before.
        """
        spec, models = self._spec, self._models
        plan = self._plan(prompts)
        compute = StepCompute(
            plan, prompts, models.actor, models.reference, self._loss(), spec.training.micro_batch_tokens, self._cache
        )
        executor = Executor(
            plan, self._schedule(mode, len(plan.units)), prompts, compute, self._rollout, self._rewards, self._timeline,
            _advantages,
        )  # fmt: skip
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
            held_media={name for name in names if share and self._cache.get(name) is not None},
        )

    def _loss(self) -> Loss:
        algorithm = self._spec.algorithm
        return Loss(
            temperature=self._spec.rollout.temperature,
            normalization=algorithm.normalization,
            clip_low=algorithm.clip.low,
            clip_high=algorithm.clip.high,
            kl_coefficient=algorithm.kl.coefficient,
            kl_estimator=algorithm.kl.estimator,
        )

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
        if step == 1 or step % every == 0:
            precision = next(self._models.actor.parameters()).dtype
            compute.parity.enforce(step, precision, prompts, executor.state.responses, self._rollout)
        self._rollout.retire()
        self._update(step, [len(r.token_ids) for r in executor.state.responses.values()], updated)

    def _update(self, step: int, lengths: Sequence[int], updated: Updated) -> None:
        gradients = self._models.gradients
        updated.scale = batch_scale(self._spec.algorithm.normalization, lengths)
        if updated.scale == 0.0:
            updated.skipped = True  # no response has a token: there is nothing to learn from
            return
        updated.grad_norm = gradients.norm() * updated.scale
        if not torch.isfinite(torch.tensor(updated.grad_norm)):
            raise RunStopped(f"step {step}: the gradient norm is {updated.grad_norm}; the update was not applied")
        # as torch.nn.utils.clip_grad_norm_
        clip = min(1.0, self._spec.training.optimizer.max_grad_norm / (updated.grad_norm + 1e-6))
        gradients.scale_(updated.scale * clip)
        updated.learning_rate = self._models.optimizer.step(gradients)


def _advantages(rewards: dict[int, list[float]]) -> dict[int, Sequence[float]]:
    return {group: group_advantages(values) for group, values in rewards.items()}
