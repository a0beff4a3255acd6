"""Running one step of the product on given models and responses, and its gradients under Hugging Face names."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rollplex.batch import Prompt, Response
from rollplex.memory.gradients import Gradients
from rollplex.policy.policy import Policy
from rollplex.rollout.protocol import Sampling
from rollplex.step.runner import Models, StepResult, StepRunner
from rollplex.step.timeline import Timeline
from rollplex.weights.hf import hf_views
from tests.engine.exact.batch import Case, ScriptedRollout, TextIsReward, make_prompts, make_responses


class Keep:
    """An optimizer that keeps the step's gradients and changes nothing."""

    def __init__(self) -> None:
        self.gradients: dict[str, torch.Tensor] = {}

    def step(self, gradients: Gradients) -> float:
        self.gradients = {name: gradient.clone() for name, gradient in gradients.items()}
        return 0.0


def gradients_by_hf_name(policy: Policy, gradients: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    def part(root: str) -> dict[str, torch.Tensor]:
        return {n.removeprefix(root): g for n, g in gradients.items() if n.startswith(root)}

    views = hf_views(part("language."), part("visual."), policy.shape)
    return {name: view.tensor() for name, view in views.items()}


def run_step(
    policy: Policy,
    initial: Policy | None,
    case: Case,
    prompts: Sequence[Prompt] | None = None,
    responses: dict[tuple[int, int], Response] | None = None,
) -> tuple[StepResult, dict[str, torch.Tensor]]:
    """One step; its result, and the gradient of every trainable parameter by its HF name."""
    policy.recompute = case.recompute
    keep = Keep()
    gradients = Gradients(policy.named_parameters())
    spec = case.job().spec
    models = Models(policy, gradients, keep, initial if spec.algorithm.needs_reference else None)
    rollout = ScriptedRollout(responses or make_responses(), case.order)
    runner = StepRunner(spec, models, rollout, TextIsReward(), Timeline())
    try:
        result = runner.run(2, prompts or make_prompts(policy.shape), Sampling())
    finally:
        gradients.close()
    return result, gradients_by_hf_name(policy, keep.gradients)
