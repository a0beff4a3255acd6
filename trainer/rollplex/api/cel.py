"""The rules between fields once more, as the API server's CEL: a bad job is refused when it is applied.

Each stands under the rule that it mirrors and says the same words; a test holds both against one table of bad jobs.
``self`` is what ``at`` names; where a field has a default, the server has filled it in before it looks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rollplex.api import cluster_rules, rules
from rollplex.api.algorithm import OPTIONS, Options
from rollplex.api.cel_files import FILE_RULES
from rollplex.api.cel_rewards import REWARD_RULES
from rollplex.api.cel_text import Cel, choice, given, literal, say, words
from rollplex.api.cluster import NUMA_NODES
from rollplex.api.job import Metadata
from rollplex.api.pod_template import pod_template_has_its_form
from rollplex.api.rules import Check
from rollplex.api.schema import structural
from rollplex.api.shapes import SHAPES

_FREED = say("vision, projector and language are all frozen: nothing is left to train")


def _lacking(has: Callable[[Options], object]) -> str:
    """CEL list of the algorithms without a part."""
    return words(name for name, own in OPTIONS.items() if not has(own))


def _table(entries: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{literal(key)}: {value}" for key, value in entries.items()) + "}"


_NAME = structural(Metadata)["properties"]["name"]
[_NAME_RULE] = _NAME["x-kubernetes-validations"]
# every child's name begins with the job's: pods append their number, and a host name has 63 characters at most
NAME = Cel(
    f"size(self.metadata.name) <= {_NAME['maxLength']} && " + _NAME_RULE["rule"].replace("self", "self.metadata.name"),
    say(
        'metadata.name "{}" has {} characters, or others than allowed; ' + _NAME_RULE["message"],
        "self.metadata.name",
        "size(self.metadata.name)",
    ),
    at="",
)

# Arithmetic of ranks, in a spec
_RANKS = "(self.nodes * self.hardware.ranksPerNode)"
_ROLLOUT_ONLY = "self.parallelism.rollout.ranks"
_ROLLOUT_RANKS = given(_ROLLOUT_ONLY, _RANKS)
_TRAIN_RANKS = f"({_RANKS} - {given(_ROLLOUT_ONLY, '0')})"
_TRAIN, _ROLLOUT = "self.parallelism.train.tensor", "self.parallelism.rollout.tensor"
_PER_NODE = "self.hardware.ranksPerNode"
_DATA_PARALLEL = f"({_TRAIN_RANKS} / {_TRAIN})"
_NUMA_NODES = given(
    "self.hardware.numaNodes",
    _table({name: str(count) for name, count in NUMA_NODES.items()}) + "[self.hardware.profile]",
)
_CONTAINERS = f"[{_NUMA_NODES}, {_PER_NODE}].min()"
_LARGER = f"[{_TRAIN}, {_ROLLOUT}].max()"


def _divides_ranks(tensor: str, ranks: str) -> Cel:
    return Cel(
        f"{ranks} <= 0 || {ranks} % {tensor} == 0",
        say(
            "{} does not divide {} ranks; choose a divisor, or another number of ranks (nodes x hardware.ranksPerNode "
            "on the cluster, --ranks elsewhere)",
            tensor,
            ranks,
        ),
        tensor.removeprefix("self"),
    )


def _stays_on_node(tensor: str, ranks: str) -> Cel:
    # where it does not divide all ranks either, that is what is said
    return Cel(
        f"{ranks} <= 0 || {ranks} % {tensor} != 0 || {_PER_NODE} % {tensor} == 0",
        say(
            "{} does not divide hardware.ranksPerNode {}, so a tensor group would cross nodes; choose a divisor",
            tensor,
            _PER_NODE,
        ),
        tensor.removeprefix("self"),
    )


def _taken(path: str, has: Callable[[Options], object]) -> Cel:
    return Cel(
        f"!has(self.{path}) || !(self.name in {_lacking(has)})",
        say("{} would not be read, since {} has none; leave it out", f"self.{path}", "self.name"),
        f".{path}",
        at="spec.algorithm",
    )


_NORMALIZATIONS = _table({name: words(own.others) for name, own in OPTIONS.items()}) + "[self.name]"
_KL_GIVEN = "self.algorithm.kl.coefficient"

CEL: Mapping[Check, tuple[Cel, ...]] = {
    rules.shape_is_known: (
        Cel(
            f"!has(self.shape) || self.shape in {words(SHAPES)}",
            say(f'"{{}}" is not one of {", ".join(SHAPES)}', "self.shape"),
            ".shape",
            at="spec.model",
        ),
    ),
    rules.something_is_trained: (
        Cel('!["vision", "projector", "language"].all(p, p in self.freeze)', _FREED, ".freeze", at="spec.model"),
    ),
    rules.reference_is_used: (
        Cel(
            'self.algorithm.name != "opd" || self.model.reference != "initial"',
            say("opd distils from a teacher; write the path of its folder"),
            ".model.reference",
        ),
        Cel(
            'self.model.reference == "initial" || self.algorithm.name == "opd" || '
            f"(has({_KL_GIVEN}) ? {_KL_GIVEN} > 0.0 : !(self.algorithm.name in {_lacking(lambda own: own.kl)}))",
            say(
                '"{}" would not be loaded, since algorithm.kl.coefficient is 0; leave it out, or give a coefficient '
                "above 0",
                "self.model.reference",
            ),
            ".model.reference",
        ),
    ),
    rules.algorithm_takes_its_options: (
        Cel(
            f"!has(self.normalization) || self.normalization in {_NORMALIZATIONS}",
            say(
                '"{}" would make {} another algorithm; use {}, or leave it out',
                "self.normalization",
                "self.name",
                choice("self.name", {name: " or ".join(own.others) for name, own in OPTIONS.items()}),
            ),
            ".normalization",
            at="spec.algorithm",
        ),
        _taken("clip.low", lambda own: own.clip is not None),
        _taken("clip.high", lambda own: own.clip is not None),
        _taken("kl.coefficient", lambda own: own.kl is not None),
        _taken("overlong.buffer", lambda own: own.overlong),
        _taken("overlong.penalty", lambda own: own.overlong),
        Cel(
            f"self.algorithm.name in {_lacking(lambda own: own.overlong)} || !has(self.algorithm.overlong.buffer) || "
            "self.algorithm.overlong.buffer <= self.rollout.maxTokens",
            say(
                "{} is above rollout.maxTokens {}, so that every response would be over-long; give less",
                "self.algorithm.overlong.buffer",
                "self.rollout.maxTokens",
            ),
            ".algorithm.overlong.buffer",
        ),
    ),
    rules.columns_or_format: (
        Cel(
            '!has(self.columns) || self.format == "rollplex"',
            say("columns by hand and format {} are both given; leave one out", "self.format"),
            ".columns",
            at="spec.data",
        ),
    ),
    **REWARD_RULES,
    rules.per_sample_is_serial: (
        Cel(
            'self.sharePrefix || self.mode == "serial"',
            say(
                "false is the per-sample baseline, which has no prefix to run under decode; mode is {}: use serial, or "
                "share the prefix",
                "self.mode",
            ),
            ".sharePrefix",
            at="spec.schedule",
        ),
    ),
    rules.one_tensor_divides_the_other: (
        Cel(
            f"{_TRAIN} % {_ROLLOUT} == 0 || {_ROLLOUT} % {_TRAIN} == 0",
            say(
                "{} and parallelism.train.tensor {}: neither divides the other, so a shard of one would not lie within "
                "shards of the other; choose degrees of which one divides the other",
                _ROLLOUT,
                _TRAIN,
            ),
            ".parallelism.rollout.tensor",
        ),
    ),
    rules.rollout_ranks_go_with_placement: (
        Cel(
            'self.placement != "disaggregated" || has(self.rollout.ranks)',
            say("is missing; placement disaggregated needs the number of ranks that roll out"),
            ".rollout.ranks",
            at="spec.parallelism",
        ),
        Cel(
            'self.placement != "colocated" || !has(self.rollout.ranks)',
            say("{}: with placement colocated every rank rolls out; leave it out", "self.rollout.ranks"),
            ".rollout.ranks",
            at="spec.parallelism",
        ),
    ),
    rules.env_from_is_secret_or_config_map: (
        Cel(
            "has(self.secretRef) != has(self.configMapRef)",
            say(
                "has {} of secretRef and configMapRef; give one",
                '(has(self.secretRef) ? "both" : "neither")',
            ),
            at="spec.envFrom[]",
        ),
    ),
    rules.rollout_leaves_ranks_to_train: (
        Cel(
            f"{_TRAIN_RANKS} >= 1",
            say("{} of {} ranks leave none to train; give fewer", _ROLLOUT_ONLY, _RANKS),
            ".parallelism.rollout.ranks",
        ),
    ),
    rules.tensors_divide_ranks: (_divides_ranks(_TRAIN, _TRAIN_RANKS), _divides_ranks(_ROLLOUT, _ROLLOUT_RANKS)),
    rules.data_parallel_divides_prompts: (
        Cel(
            f"{_TRAIN_RANKS} <= 0 || {_TRAIN_RANKS} % {_TRAIN} != 0 || "
            f"self.training.promptsPerStep % {_DATA_PARALLEL} == 0",
            say(
                "{} is not divisible by the data-parallel size {} ({} ranks / parallelism.train.tensor {}); choose a "
                "multiple of {}",
                "self.training.promptsPerStep",
                _DATA_PARALLEL,
                _TRAIN_RANKS,
                _TRAIN,
                _DATA_PARALLEL,
            ),
            ".training.promptsPerStep",
        ),
    ),
    cluster_rules.tensor_group_stays_on_its_node: (
        _stays_on_node(_TRAIN, _TRAIN_RANKS),
        _stays_on_node(_ROLLOUT, _ROLLOUT_RANKS),
    ),
    cluster_rules.tensor_group_stays_in_its_container: (
        Cel(
            'self.numa.pinning != "container" || self.numa.gpuAllocation != "devicePlugin" || '
            f"{_LARGER} == 1 || ({_PER_NODE} % {_CONTAINERS} == 0 && {_PER_NODE} / {_CONTAINERS} % {_LARGER} == 0)",
            say(
                "devicePlugin with pinning container gives each of {} containers {} GPUs of its own, and a tensor "
                "group of {} would span them; use gpuAllocation dra, or pinning process, or tensor degrees that divide "
                "{}",
                _CONTAINERS,
                f"{_PER_NODE} / {_CONTAINERS}",
                _LARGER,
                f"{_PER_NODE} / {_CONTAINERS}",
            ),
            ".numa.gpuAllocation",
        ),
    ),
    **FILE_RULES,
    cluster_rules.queue_is_read: (
        Cel(
            'self.gang != "kueue" || has(self.queue)',
            say("is missing; gang kueue needs the name of a LocalQueue of the namespace"),
            ".queue",
            at="spec.scheduling",
        ),
        Cel(
            '!(self.gang in ["native", "coscheduling", "none"]) || !has(self.queue)',
            say('"{}" would not be read with gang {}; leave it out, or use kueue', "self.queue", "self.gang"),
            ".queue",
            at="spec.scheduling",
        ),
    ),
}

# Rules that the schema says by itself.
IN_SCHEMA: Mapping[Check, str] = {
    rules.volumes_have_their_own_paths: "volumes are a map by path",
    pod_template_has_its_form: "the template's schema",
}
