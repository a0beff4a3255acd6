"""What a step has to do: the job's part of it, and the lengths that only its data would tell."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from statistics import NormalDist

from rollplex.api.errors import JobError
from rollplex.api.job import JobSpec
from rollplex.api.shapes import SHAPES, ModelShape, shape_from_folder

# Of a prompt, where its media are not known: the template and a question.
TEXT_TOKENS = 64
# Of the normal distribution behind response lengths: the longest of a hundred are about three times the median.
RESPONSE_SIGMA = 0.5


@dataclass(frozen=True)
class Workload:
    """A step of the whole job. Tokens are a prompt's or a response's, vision tokens included."""

    shape: ModelShape
    ranks: int
    train_tensor: int
    rollout_tensor: int
    prompts: int  # a step
    group_size: int
    prompt_tokens: int
    media_tokens: int  # of the prompt's
    response_tokens: int  # median
    max_response_tokens: int
    reference: bool
    shared_tower: bool  # frozen, and the reference's too: encoded once for both
    trained_tower: bool
    share_prefix: bool
    run_ahead: int | None  # None: as many as the plan finds room for
    micro_batch_tokens: int
    item_bytes: int
    rollout_ranks: int = 0  # of a disaggregated placement
    ranks_per_node: int = 8
    response_sigma: float = RESPONSE_SIGMA
    seed: int = 1

    def check(self) -> None:
        """Raises JobError where the tensor degrees do not divide the ranks, as the job's own rules would."""
        for name, tensor, ranks in (
            ("train", self.train_tensor, self.train_ranks),
            ("rollout", self.rollout_tensor, self.rollout_ranks or self.ranks),
        ):
            if tensor < 1 or ranks % tensor or self.ranks_per_node % tensor:
                raise JobError.at(
                    f"spec.parallelism.{name}.tensor",
                    f"{tensor} does not divide {ranks} ranks and the {self.ranks_per_node} of a node",
                )

    @property
    def train_ranks(self) -> int:
        """Ranks that train: all of them, but for those that only roll out."""
        return self.ranks - self.rollout_ranks

    @property
    def train_data(self) -> int:
        """Data-parallel size of training."""
        return self.train_ranks // self.train_tensor

    @property
    def groups(self) -> int:
        """Groups that one train TP group works on."""
        return math.ceil(self.prompts / self.train_data)

    @property
    def replicas(self) -> float:
        """Rollout replicas on one train TP group's ranks; below 1 where a replica spans several."""
        ranks = self.rollout_ranks or self.ranks
        return ranks / self.rollout_tensor / self.train_data

    def response_lengths(self, count: int) -> list[int]:
        """``count`` lengths at even quantiles of a lognormal, cut at the limit, in a seeded order."""
        normal = NormalDist(math.log(self.response_tokens), self.response_sigma or 1e-9)
        lengths = [
            min(self.max_response_tokens, max(1, round(math.exp(float(normal.inv_cdf((index + 0.5) / count))))))
            for index in range(count)
        ]
        random.Random(self.seed).shuffle(lengths)
        return lengths


def workload_of(
    spec: JobSpec, ranks: int, prompt_tokens: int | None = None, response_tokens: int | None = None
) -> Workload:
    """The job's step; without given lengths prompts are as long as they may be, and responses half as long.

    Raises:
        JobError: a model folder that cannot be seen and no ``spec.model.shape``, or lengths outside the job's limits.
    """
    limit, longest = spec.data.max_prompt_tokens, spec.rollout.max_tokens
    prompt = _within("--prompt-tokens", prompt_tokens, limit, "data.maxPromptTokens", limit)
    response = _within("--response-tokens", response_tokens, longest, "rollout.maxTokens", max(1, longest // 2))
    frozen = {"vision", "projector"} <= set(spec.model.freeze)
    parallel = spec.parallelism
    return Workload(
        shape=shape_of(spec),
        ranks=ranks,
        train_tensor=parallel.train.tensor,
        rollout_tensor=parallel.rollout.tensor,
        prompts=spec.training.prompts_per_step,
        group_size=spec.algorithm.group_size,
        prompt_tokens=prompt,
        media_tokens=max(0, prompt - TEXT_TOKENS),
        response_tokens=response,
        max_response_tokens=longest,
        reference=spec.algorithm.needs_reference,
        shared_tower=frozen and spec.model.reference == "initial",
        trained_tower=not frozen,
        share_prefix=spec.schedule.share_prefix,
        run_ahead=None if spec.schedule.run_ahead == "auto" else spec.schedule.run_ahead,
        micro_batch_tokens=spec.training.micro_batch_tokens,
        item_bytes=4
        if spec.precision == "fp32" or (spec.precision == "auto" and spec.hardware.profile == "cpu")
        else 2,
        rollout_ranks=parallel.rollout.ranks or 0,
        ranks_per_node=spec.hardware.ranks_per_node,
        seed=spec.training.seed,
    )


def shape_of(spec: JobSpec) -> ModelShape:
    """From the model's folder if it is here, else by ``spec.model.shape``."""
    try:
        return shape_from_folder(spec.model.path)
    except ValueError as error:
        if spec.model.shape in SHAPES:
            return SHAPES[spec.model.shape]
        raise JobError.at(
            "spec.model", f"{error}; or set model.shape to one of {', '.join(SHAPES)} where the folder cannot be seen"
        ) from None


def _within(option: str, value: int | None, limit: int, field: str, default: int) -> int:
    if value is None:
        return default
    if not 1 <= value <= limit:
        raise JobError.at(option, f"{value} is not within 1 and spec.{field} ({limit}); change either")
    return value
