"""A runner on the tiny policy whose engine and rewards are doubles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from rollplex.batch import Prompt
from rollplex.memory.gradients import Gradients
from rollplex.memory.optimizer import Optimizer
from rollplex.policy.policy import Policy
from rollplex.rollout.protocol import Sampling
from rollplex.step.runner import Models, StepResult, StepRunner
from rollplex.step.timeline import Timeline
from tests.engine.exact.batch import GROUP, Case, ScriptedRollout, TextIsReward, make_prompts, make_responses
from tests.engine.exact.harness import Keep
from tests.engine.tiny import random_policy, tiny_shape

NO_KL = Case(kl=0.0)


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
    check: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.keep = Keep()
        self.gradients = Gradients(self.actor.named_parameters())
        models = Models(self.actor, self.gradients, self.optimizer or self.keep, self.reference)
        spec = self.case.job().spec
        algorithm = spec.algorithm.model_copy(update={"group_size": self.group_size})
        spec = spec.model_copy(update={"algorithm": algorithm})
        self.runner = StepRunner(spec, models, self.rollout, TextIsReward(), Timeline(), check=self.check)

    def run(self, step: int = 2) -> StepResult:
        return self.runner.run(step, self.prompts, Sampling())


def weights(policy: Policy) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in policy.named_parameters()}


def assert_unchanged(policy: Policy, before: dict[str, torch.Tensor]) -> None:
    for name, parameter in policy.named_parameters():
        assert torch.equal(parameter, before[name]), name
