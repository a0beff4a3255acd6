"""Every metric a step may write: name, unit, meaning. docs/metrics-jsonl.md is generated from this table."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import SupportsFloat

from rollplex.telemetry.events import COMPUTE_KINDS

Value = float | int | str


@dataclass(frozen=True, slots=True)
class Key:
    """One column of metrics.jsonl; a name that ends in <name> stands for all that begin as it does."""

    name: str
    unit: str
    help: str


_PHASES = {
    "encode": "vision tower and projector, forward",
    "ref_prefix": "the reference's prefixes",
    "actor_prefix": "the actor's prefixes, forward",
    "ref_suffix": "the reference's suffixes",
    "actor_suffix": "the actor's suffixes: forward, loss, backward to the boundary KV",
    "prefix_backward": "backward of the actor's prefixes",
    "encode_backward": "backward of projector and vision tower",
    "update": "gradient norm, clipping, optimizer step",
    "publish": "copies re-laid-out, engine caches reset, weight version raised",
}

# k of pass@k, as far as evaluation.samples reaches
PASS_AT = (1, 2, 4, 8, 16, 32, 64)

KEYS: tuple[Key, ...] = (
    Key("step", "count", "Number of the optimizer step, from 1."),
    Key("reward/mean", "reward", "Mean reward over all responses of the step."),
    Key("reward/std", "reward", "Standard deviation of the reward over all responses of the step."),
    Key(
        "reward/part/<name>",
        "reward",
        "Mean of one part of the weighted sum, before its weight: a verifier or a function, numbered where two share a "
        "name (exact#2).",
    ),
    Key("reward/zero_variance_groups", "count", "Groups whose responses all have the same reward: they teach nothing."),
    Key("reward/timeouts", "count", "Responses whose reward function passed its time limit."),
    Key("reward/errors", "count", "Responses whose reward function raised."),
    Key(
        "groups/skipped",
        "count",
        "Groups that left no gradient (their advantages are zero, without a KL): not computed.",
    ),
    Key("groups/filtered", "count", "Those of them that dapo takes out of its batch, denominators included."),
    Key("loss", "nats", "The loss whose gradient was applied, KL term included."),
    Key("kl/mean", "nats", "Mean KL estimate against the reference per response token; absent without a reference."),
    Key(
        "entropy/mean", "nats", "Mean entropy of the policy softmax(logits / T) over response tokens that were scored."
    ),
    Key(
        "ratio/mean",
        "ratio",
        "Mean importance ratio policy / engine by token, before cap and clip; algorithm.ratio: rollout.",
    ),
    Key("ratio/max", "ratio", "Largest importance ratio of a token, before cap and clip; algorithm.ratio: rollout."),
    Key(
        "ratio/capped_share",
        "share",
        "Response tokens whose ratio passes algorithm.ratioCap; algorithm.ratio: rollout.",
    ),
    Key("ratio/clipped_share", "share", "Response tokens at which the clip decided; algorithm.ratio: rollout."),
    Key("grad/norm", "norm", "Gradient norm over all trained parameters, before clipping."),
    Key("learning_rate", "rate", "Learning rate of this step."),
    Key(
        "update/skipped",
        "count",
        "1 if the step left the weights alone: nothing to learn from (no response token), or not finite.",
    ),
    Key("update/nonfinite", "count", "1 if the step's loss or gradient was not finite; nonfinite/ keeps its rollouts."),
    Key("response/tokens_mean", "tokens", "Mean tokens of a response."),
    Key("response/tokens_max", "tokens", "Tokens of the longest response."),
    Key(
        "response/stopped_share",
        "share",
        "Responses that a stop id or stop string ended; the others ran into maxTokens.",
    ),
    Key("parity/max", "nats", "Largest |rollout logprob - trainer logprob| over the response tokens."),
    Key("parity/mean", "nats", "Mean |rollout logprob - trainer logprob|."),
    Key("parity/p95", "nats", "95th percentile of |rollout logprob - trainer logprob|."),
    Key(
        "tokens/prefix",
        "tokens",
        "Prefix tokens through actor and reference, each counted as often as it was computed.",
    ),
    Key("tokens/prefix_saved", "tokens", "Prefix tokens that sharing a prefix within its group did not compute again."),
    Key("tokens/suffix", "tokens", "Suffix tokens through actor and reference."),
    Key("tokens/vision", "tokens", "Language tokens of the media that the vision towers encoded, each time counted."),
    Key("tokens/decode", "tokens", "Response tokens that the engine sampled."),
    Key("tokens/per_second", "tokens/s", "Prompt and response tokens of all samples, per second of the step."),
    Key("seconds/step", "s", "The step on the wall clock, from its first item to the published weights."),
    Key("seconds/decode", "s", "Decode lane at work: its engine steps and the short gaps between them."),
    Key("seconds/hidden", "s", "Compute that ran while the decode lane was at work."),
    Key("seconds/exposed", "s", "Compute that the step had to wait for; hidden + exposed is all compute."),
    Key(
        "seconds/saved",
        "s",
        "Stand-alone seconds of the hidden work, minus what decode lost to it, minus forwards that ran twice. "
        "Negative: overlapping cost time. Absent while the run has not yet measured the same work alone.",
    ),
    *(Key(f"seconds/phase/{kind}", "s", f"Compute lane: {_PHASES[kind]}.") for kind in COMPUTE_KINDS),
    Key(
        "schedule/mode",
        "name",
        "Schedule of this step: serial, overlap or stream. The first step of a start or resume is serial.",
    ),
    Key(
        "seconds/checkpoint",
        "s",
        "What the run waited for to save this step: the copy to host memory and the end of the save before.",
    ),
    Key("rollout/stalled", "count", "Requests that the engine left without a token for longer than the stall limit."),
    Key("weights/version", "count", "Version of the weights that this step's rollout, reference and actor work read."),
    Key(
        "data/skipped",
        "count",
        "Rows of data.train that cannot be used: those skipped since the run began (unreadable, too long), each once "
        "and named in the log, and from the first step on those left out because their text alone is too long.",
    ),
    Key("data/cache_hits", "count", "Media whose decoded frames came from the cache, since this process began."),
    Key("data/cache_misses", "count", "Media that were decoded, since this process began."),
    Key("eval/reward/mean", "reward", "Mean reward on the held-out set, responses sampled; only at evaluation steps."),
    Key("eval/greedy/reward/mean", "reward", "Mean reward on the held-out set, one greedy response a prompt."),
    *(
        Key(f"eval/pass@{k}", "share", f"Held-out prompts that {k} sampled response{'s' * (k > 1)} would pass.")
        for k in PASS_AT
    ),
    Key(
        "eval/blank/reward/mean",
        "reward",
        "As eval/reward/mean with every frame blanked: what guessing earns without seeing.",
    ),
)
_OPEN = "<name>"
_NAMES = {key.name: at for at, key in enumerate(KEYS) if not key.name.endswith(_OPEN)}
_OPEN_NAMES = {key.name.removesuffix(_OPEN): at for at, key in enumerate(KEYS) if key.name.endswith(_OPEN)}


def row(metrics: Mapping[str, SupportsFloat | str | None]) -> dict[str, Value]:
    """One step's metrics in the table's order, as plain numbers; values that are None (not measured) are left out.

    Numbers may be of any kind that float() takes (numpy and one-element torch values too).

    Raises:
        ValueError: a name that the table lacks, or no ``step``.
    """
    unknown = sorted(name for name in metrics if _place(name) is None)
    if unknown:
        raise ValueError(f"metrics {', '.join(unknown)}: not documented; add each to KEYS in rollplex.telemetry.keys")
    if metrics.get("step") is None:
        raise ValueError("metrics have no step; every row of metrics.jsonl carries it")
    measured = {name: _plain(value) for name, value in metrics.items() if value is not None}
    # the names of one open row keep their own order: parts stand as the job has them
    return {name: measured[name] for name in sorted(measured, key=lambda name: _place(name) or 0)}


def _place(name: str) -> int | None:
    """The line of the table that a metric belongs to; None: it has none."""
    begins = (at for begin, at in _OPEN_NAMES.items() if name.startswith(begin) and name != begin)
    return _NAMES.get(name, next(begins, None))


def _plain(value: SupportsFloat | str) -> Value:
    if isinstance(value, str):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def finite_or_none(value: Value) -> Value | None:
    """JSON has no NaN and no infinity: such a value is written as null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


_PAGE = """\
<!-- Generated by `python -m rollplex.telemetry.keys`; edit the table in trainer/rollplex/telemetry/keys.py. -->
# metrics.jsonl

`runs/<name>/metrics.jsonl` has one JSON object a line and a line a step, on disk as soon as the step is over. Keys come
in the order below; TensorBoard shows the same names. A key that a step did not measure is absent; a value that is not
finite is `null`. Nothing else is ever written: a name outside this table is an error in the trainer.

```sh
tail -n 1 runs/demo/metrics.jsonl
python -c 'import pandas; print(pandas.read_json("runs/demo/metrics.jsonl", lines=True)["reward/mean"].tail())'
```

What hidden, exposed and saved mean, and how they are measured: [overlap.md](overlap.md).

| key | unit | meaning |
| --- | --- | --- |
"""


def page() -> str:
    """docs/metrics-jsonl.md."""
    return _PAGE + "".join(f"| `{key.name}` | {key.unit} | {key.help.replace('|', chr(92) + '|')} |\n" for key in KEYS)


if __name__ == "__main__":
    sys.stdout.write(page())
