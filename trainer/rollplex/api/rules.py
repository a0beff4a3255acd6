"""The rules between fields: each a small function, all in one table.

A rule is given the spec and the number of ranks and yields faults. It names the fields that it reads, so that it stays
silent where one of them is wrong already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from rollplex.api.algorithm import OPTIONS
from rollplex.api.cluster_rules import (
    checkpoint_outlives_its_pod,
    files_lie_on_volumes,
    queue_is_read,
    tensor_group_stays_in_its_container,
    tensor_group_stays_on_its_node,
    volumes_leave_taken_paths,
)
from rollplex.api.errors import Fault
from rollplex.api.job import JobSpec
from rollplex.api.pod_template import pod_template_has_its_form
from rollplex.api.reward_rules import (
    evaluation_has_a_reward,
    length_penalty_can_act,
    replay_is_not_evaluated,
    reward_is_given,
    reward_is_named_or_python,
    reward_options_are_its_own,
)
from rollplex.api.shapes import SHAPES

Check = Callable[[JobSpec, int], Iterator[Fault]]
TENSORS = ("spec.parallelism.train.tensor", "spec.parallelism.rollout.tensor")


@dataclass(frozen=True, slots=True)
class Rule:
    """``scope`` job: always; ranks: where their number is known; cluster: of a job that becomes pods."""

    check: Check
    reads: tuple[str, ...]
    scope: Literal["job", "ranks", "cluster"] = "job"

    def reads_any(self, paths: frozenset[str]) -> bool:
        """Whether one of these fields, or a part or an owner of one, is read."""
        return any(
            read == path or read.startswith(f"{path}.") or path.startswith(f"{read}.")
            for read in self.reads
            for path in paths
        )


def shape_is_known(spec: JobSpec, _: int) -> Iterator[Fault]:
    """`model.shape` is a shape that this version knows."""
    if spec.model.shape is not None and spec.model.shape not in SHAPES:
        yield Fault("spec.model.shape", f'"{spec.model.shape}" is not one of {", ".join(SHAPES)}')


def something_is_trained(spec: JobSpec, _: int) -> Iterator[Fault]:
    """`model.freeze` leaves something to train."""
    if set(spec.model.freeze) == {"vision", "projector", "language"}:
        yield Fault("spec.model.freeze", "vision, projector and language are all frozen: nothing is left to train")


def reference_is_used(spec: JobSpec, _: int) -> Iterator[Fault]:
    """A `model.reference` other than `initial` needs `kl.coefficient` above 0; `opd` needs one, its teacher."""
    given, teaches = spec.model.reference != "initial", spec.algorithm.name == "opd"
    if teaches and not given:
        yield Fault("spec.model.reference", "opd distils from a teacher; write the path of its folder")
    if given and not teaches and spec.algorithm.kl_coefficient == 0:
        yield Fault(
            "spec.model.reference",
            f'"{spec.model.reference}" would not be loaded, since algorithm.kl.coefficient is 0; '
            "leave it out, or give a coefficient above 0",
        )


def algorithm_takes_its_options(spec: JobSpec, _: int) -> Iterator[Fault]:
    """`algorithm.normalization`, `clip`, `kl` and `overlong` are given only where the algorithm has such a part."""
    given, own = spec.algorithm, OPTIONS[spec.algorithm.name]
    if given.normalization is not None and given.normalization not in own.others:
        yield Fault(
            "spec.algorithm.normalization",
            f'"{given.normalization}" would make {given.name} another algorithm; use {" or ".join(own.others)}, or '
            "leave it out",
        )
    for path, value, taken in (
        ("clip.low", given.clip.low, own.clip is not None),
        ("clip.high", given.clip.high, own.clip is not None),
        ("kl.coefficient", given.kl.coefficient, own.kl is not None),
        ("overlong.buffer", given.overlong.buffer, own.overlong),
        ("overlong.penalty", given.overlong.penalty, own.overlong),
    ):
        if value is not None and not taken:
            yield Fault(
                f"spec.algorithm.{path}", f"{value} would not be read, since {given.name} has none; leave it out"
            )
    buffer, most = given.overlong.buffer or 0, spec.rollout.max_tokens
    if own.overlong and buffer > most:
        yield Fault(
            "spec.algorithm.overlong.buffer",
            f"{buffer} is above rollout.maxTokens {most}, so that every response would be over-long; give less",
        )


def columns_or_format(spec: JobSpec, _: int) -> Iterator[Fault]:
    """`data.columns` stands in the place of another `data.format`."""
    if spec.data.columns is not None and spec.data.format != "rollplex":
        yield Fault("spec.data.columns", f"columns by hand and format {spec.data.format} are both given; leave one out")


def per_sample_is_serial(spec: JobSpec, _: int) -> Iterator[Fault]:
    """`schedule.sharePrefix: false` needs `schedule.mode: serial`."""
    if not spec.schedule.share_prefix and spec.schedule.mode != "serial":
        yield Fault(
            "spec.schedule.sharePrefix",
            f"false is the per-sample baseline, which has no prefix to run under decode; mode is {spec.schedule.mode}: "
            "use serial, or share the prefix",
        )


def one_tensor_divides_the_other(spec: JobSpec, _: int) -> Iterator[Fault]:
    """One tensor degree divides the other."""
    train, rollout = spec.parallelism.train.tensor, spec.parallelism.rollout.tensor
    if max(train, rollout) % min(train, rollout):
        yield Fault(
            TENSORS[1],
            f"{rollout} and parallelism.train.tensor {train}: neither divides the other, so a shard of one would not "
            "lie within shards of the other; choose degrees of which one divides the other",
        )


def rollout_ranks_go_with_placement(spec: JobSpec, _: int) -> Iterator[Fault]:
    """`parallelism.rollout.ranks` and `placement: disaggregated` need each other."""
    path, ranks = "spec.parallelism.rollout.ranks", spec.parallelism.rollout.ranks
    if spec.parallelism.placement == "disaggregated" and ranks is None:
        yield Fault(path, "is missing; placement disaggregated needs the number of ranks that roll out")
    if spec.parallelism.placement == "colocated" and ranks is not None:
        yield Fault(path, f"{ranks}: with placement colocated every rank rolls out; leave it out")


def env_from_is_secret_or_config_map(spec: JobSpec, _: int) -> Iterator[Fault]:
    """Each `envFrom` has either `secretRef` or `configMapRef`."""
    for index, source in enumerate(spec.env_from):
        if (source.secret_ref is None) == (source.config_map_ref is None):
            count = "neither" if source.secret_ref is None else "both"
            yield Fault(f"spec.envFrom.{index}", f"has {count} of secretRef and configMapRef; give one")


def volumes_have_their_own_paths(spec: JobSpec, _: int) -> Iterator[Fault]:
    """No two volumes have the same path."""
    seen: dict[str, str] = {}
    for index, volume in enumerate(spec.volumes):
        if volume.path in seen:
            yield Fault(
                f"spec.volumes.{index}.path",
                f"{volume.path} is where claim {seen[volume.path]} is mounted already; choose another path",
            )
        seen[volume.path] = volume.claim


def _train_and_rollout_ranks(spec: JobSpec, ranks: int) -> tuple[int, int]:
    if spec.parallelism.rollout.ranks is None:
        return ranks, ranks
    return ranks - spec.parallelism.rollout.ranks, spec.parallelism.rollout.ranks


def rollout_leaves_ranks_to_train(spec: JobSpec, ranks: int) -> Iterator[Fault]:
    """`parallelism.rollout.ranks` leaves ranks to train."""
    if _train_and_rollout_ranks(spec, ranks)[0] < 1:
        taken = spec.parallelism.rollout.ranks
        yield Fault("spec.parallelism.rollout.ranks", f"{taken} of {ranks} ranks leave none to train; give fewer")


def tensors_divide_ranks(spec: JobSpec, ranks: int) -> Iterator[Fault]:
    """Both tensor degrees divide the ranks that they share out."""
    shares = _train_and_rollout_ranks(spec, ranks)
    for path, tensor, share in zip(TENSORS, _tensors(spec), shares, strict=True):
        if share > 0 and share % tensor:
            yield Fault(
                path,
                f"{tensor} does not divide {share} ranks; choose a divisor, or another number of ranks "
                "(nodes x hardware.ranksPerNode on the cluster, --ranks elsewhere)",
            )


def data_parallel_divides_prompts(spec: JobSpec, ranks: int) -> Iterator[Fault]:
    """`training.promptsPerStep` is divisible by the data-parallel size, training ranks / `train.tensor`."""
    train, tensor, prompts = (
        _train_and_rollout_ranks(spec, ranks)[0],
        spec.parallelism.train.tensor,
        spec.training.prompts_per_step,
    )
    if train > 0 and train % tensor == 0 and prompts % (train // tensor):
        yield Fault(
            "spec.training.promptsPerStep",
            f"{prompts} is not divisible by the data-parallel size {train // tensor} "
            f"({train} ranks / parallelism.train.tensor {tensor}); choose a multiple of {train // tensor}",
        )


def _tensors(spec: JobSpec) -> tuple[int, int]:
    return spec.parallelism.train.tensor, spec.parallelism.rollout.tensor


_PLACEMENT = ("spec.parallelism.placement", "spec.parallelism.rollout.ranks")
_FILES = (
    *("spec.model.path", "spec.model.reference", "spec.data.train", "spec.reward", "spec.rollout.replay"),
    *("spec.evaluation.data", "spec.checkpoint.path", "spec.volumes", "spec.podTemplate"),
)

RULES: tuple[Rule, ...] = (
    Rule(shape_is_known, ("spec.model.shape",)),
    Rule(something_is_trained, ("spec.model.freeze",)),
    Rule(reference_is_used, ("spec.model.reference", "spec.algorithm.name", "spec.algorithm.kl.coefficient")),
    Rule(algorithm_takes_its_options, ("spec.algorithm", "spec.rollout.maxTokens")),
    Rule(columns_or_format, ("spec.data.columns", "spec.data.format")),
    Rule(reward_is_given, ("spec.reward", "spec.algorithm.name")),
    Rule(evaluation_has_a_reward, ("spec.reward", "spec.algorithm.name", "spec.evaluation")),
    Rule(reward_is_named_or_python, ("spec.reward",)),
    Rule(reward_options_are_its_own, ("spec.reward",)),
    Rule(length_penalty_can_act, ("spec.reward", "spec.rollout.maxTokens")),
    Rule(replay_is_not_evaluated, ("spec.rollout.replay", "spec.evaluation")),
    Rule(per_sample_is_serial, ("spec.schedule.sharePrefix", "spec.schedule.mode")),
    Rule(one_tensor_divides_the_other, TENSORS),
    Rule(rollout_ranks_go_with_placement, _PLACEMENT),
    Rule(env_from_is_secret_or_config_map, ("spec.envFrom",)),
    Rule(volumes_have_their_own_paths, ("spec.volumes",)),
    Rule(pod_template_has_its_form, ("spec.podTemplate",)),
    Rule(rollout_leaves_ranks_to_train, _PLACEMENT, "ranks"),
    Rule(tensors_divide_ranks, (*TENSORS, *_PLACEMENT), "ranks"),
    Rule(data_parallel_divides_prompts, ("spec.training.promptsPerStep", TENSORS[0], *_PLACEMENT), "ranks"),
    Rule(tensor_group_stays_on_its_node, (*TENSORS, "spec.hardware.ranksPerNode"), "cluster"),
    Rule(tensor_group_stays_in_its_container, (*TENSORS, "spec.numa", "spec.hardware"), "cluster"),
    Rule(files_lie_on_volumes, _FILES, "cluster"),
    Rule(volumes_leave_taken_paths, ("spec.volumes",), "cluster"),
    Rule(queue_is_read, ("spec.scheduling.gang", "spec.scheduling.queue"), "cluster"),
    Rule(checkpoint_outlives_its_pod, ("spec.checkpoint.path", "spec.volumes", "spec.podTemplate"), "cluster"),
)
