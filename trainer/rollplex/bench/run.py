"""Running the modes of a benchmark against each other."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from rollplex import setup
from rollplex.api.job import JobSpec, RollplexJob
from rollplex.batch import Prompt, Response
from rollplex.bench.lengths import response_lengths
from rollplex.bench.random_model import random_folder, random_policy
from rollplex.bench.report import Rounds, as_table, build_report, write_report
from rollplex.bench.same_work import SameWork
from rollplex.data.columns import columns_of
from rollplex.data.dataset import read_rows
from rollplex.data.loader import Loader
from rollplex.data.reader import Reader
from rollplex.reward.pool import RewardPool
from rollplex.rollout.protocol import Rollout, Sampling
from rollplex.rollout.replay import ReplayEngine, SavedSample
from rollplex.step.runner import Models, StepRunner
from rollplex.step.timeline import Timeline, Yardstick, timeline_metrics
from rollplex.telemetry.progress import Progress

# name -> schedule mode, shared prefixes; serial comes before what is measured by its yardstick
MODES: dict[str, tuple[str, bool]] = {
    "per-sample": ("serial", False),
    "serial": ("serial", True),
    "overlap": ("overlap", True),
    "stream": ("stream", True),
}
_STEP = 1  # every round is the same step: same seeds, same responses


@dataclass
class Bench:
    """One batch, its models and its rollout."""

    spec: JobSpec
    models: Models
    rollout: Rollout
    rewards: RewardPool
    prompts: Sequence[Prompt]
    sampling: Sampling


def bench(
    job: RollplexJob,
    repeat: int = 3,
    json_file: Path | None = None,
    random_weights: str | None = None,
    response_tokens: str | None = None,
) -> None:
    """Run one batch of a job through every mode, ``repeat`` rounds each, and print (and write) what it took.

    The learning rate is 0: an update does all its arithmetic and leaves the weights as they are, so that every round
    is the same work.

    Args:
        job: valid for ``context="train"``.
        repeat: interleaved rounds; a first one warms up and is not counted.
        json_file: where to write the report.
        random_weights: name of a shape whose weights are drawn instead of read.
        response_tokens: ``N`` or ``lognormal:MEDIAN:SIGMA``, see :func:`rollplex.bench.lengths.response_lengths`.
    """
    with Progress(repeat) as progress, open_bench(job, progress, random_weights, response_tokens) as parts:
        same = SameWork(parts.rollout)
        same.publish()
        with progress.phase("recording the batch's responses"):
            same.record(_STEP, parts.prompts, parts.spec.algorithm.group_size, parts.sampling)
        saved = [_saved(parts.prompts[r.prompt], r) for r in same.recorded.values()]
        with progress.phase(f"{repeat} rounds with live decoding"):
            live = run_rounds(parts, same, repeat, progress)
        with progress.phase(f"{repeat} rounds of replay"):
            replay = ReplayEngine(saved)
            replay.publish()
            replayed = run_rounds(parts, replay, repeat, progress)
        report = build_report(live, replayed, _work(job, parts, saved, random_weights, response_tokens))
    # a log has no width; 80 columns would cut the numbers
    Console(width=None if sys.stdout.isatty() else 120).print(as_table(report))
    for pair in ("per-sample/stream", "serial/overlap", "serial/stream"):
        progress.say(f"{pair}: {report['ratios'][pair]:.2f}")
    if json_file is not None:
        write_report(report, json_file)


def run_rounds(parts: Bench, rollout: Rollout, repeat: int, progress: Progress) -> dict[str, Rounds]:
    """Interleaved rounds of all modes, the first of which is only a warm-up."""
    found = {name: Rounds() for name in MODES}
    yardstick = Yardstick()
    for number in range(repeat + 1):
        for name, (mode, share) in MODES.items():
            schedule = parts.spec.schedule.model_copy(update={"mode": mode, "share_prefix": share})
            spec = parts.spec.model_copy(update={"schedule": schedule})
            # a runner of its own: features of frozen towers must not outlive a round
            result = StepRunner(spec, parts.models, rollout, parts.rewards, Timeline(), skip=False).run(
                _STEP, parts.prompts, parts.sampling
            )
            if number == 0:
                continue
            if name == "serial":
                yardstick.observe(result.timeline)
            _add(
                found[name],
                result.compute.sums.passes,
                result.decode_tokens,
                timeline_metrics(result.timeline, yardstick),
            )
            progress.say(f"round {number}/{repeat} {name}: {result.timeline.seconds:.2f} s")
    return found


def _add(rounds: Rounds, passes: dict[str, int], decoded: int, seconds: dict[str, float | None]) -> None:
    def known(name: str) -> float:
        value = seconds[name]
        assert value is not None
        return value

    rounds.tokens = {**passes, "decode": decoded}
    rounds.seconds.append(known("seconds/step"))
    rounds.hidden.append(known("seconds/hidden"))
    rounds.exposed.append(known("seconds/exposed"))
    rounds.saved.append(seconds["seconds/saved"])


@contextmanager
def open_bench(
    job: RollplexJob, progress: Progress, random_weights: str | None, response_tokens: str | None
) -> Iterator[Bench]:
    """Build what a benchmark needs, what can be wrong first and the engine last."""
    with ExitStack() as stack:
        spec = _without_learning(job.spec)
        shape = None
        if random_weights is not None:
            folder, shape = stack.enter_context(random_folder(random_weights))
            spec = spec.model_copy(update={"model": spec.model.model_copy(update={"path": str(folder)})})
        with progress.phase("reading the data"):
            job = setup.resolved(job.model_copy(update={"spec": spec}), setup.model_shape(spec))
            spec = job.spec
            rows = read_rows(spec.data.train, "spec.data.train", columns_of(spec.data))
            reader = Reader(spec.model.path, spec.data)
            stack.callback(reader.close)
            loader = Loader(reader, rows, prompts_per_step=spec.training.prompts_per_step, seed=spec.training.seed)
            prompts = loader.batch(_STEP).prompts
            rewards = RewardPool(spec.reward, workers=2)
            stack.callback(rewards.close)
        sampling = setup.sampling(spec)
        if response_tokens is not None:
            lengths = response_lengths(
                response_tokens, len(prompts), spec.algorithm.group_size, spec.training.seed, spec.rollout.max_tokens
            )
            sampling = replace(sampling, limits=lengths, exact=True)
        with progress.phase("loading the model"):
            if shape is None:
                models = setup.build_models(spec)
            else:
                seeds = (0, 1) if spec.algorithm.needs_reference else (0,)
                drawn = [
                    random_policy(shape, setup.precision(spec), setup.recompute(spec), seed, setup.device())
                    for seed in seeds
                ]
                models = setup.assemble(spec, drawn[0], drawn[1] if len(drawn) > 1 else None)
        with progress.phase("starting the rollout engine"):
            rollout = setup.build_rollout(spec, models)
            stack.callback(rollout.close)
        yield Bench(spec, models, rollout, rewards, prompts, sampling)


def _without_learning(spec: JobSpec) -> JobSpec:
    optimizer = spec.training.optimizer.model_copy(update={"learning_rate": 0.0})
    return spec.model_copy(update={"training": spec.training.model_copy(update={"optimizer": optimizer})})


def _saved(prompt: Prompt, response: Response) -> SavedSample:
    return SavedSample(
        step=_STEP,
        prompt_id=prompt.id,
        prompt_key=prompt.key,
        sample=response.sample,
        prompt_token_ids=prompt.token_ids,
        token_ids=response.token_ids,
        logprobs=response.logprobs,
        finish=response.finish,
        stop=response.stop,
        text=response.text,
    )


def _work(
    job: RollplexJob,
    parts: Bench,
    saved: Sequence[SavedSample],
    random_weights: str | None,
    response_tokens: str | None,
) -> dict[str, Any]:
    """What was run, for the report."""
    response = [len(sample.token_ids) for sample in saved]
    prompt = [len(item.token_ids) for item in parts.prompts]
    group = parts.spec.algorithm.group_size
    return {
        "job": job.metadata.name,
        "prompts": len(parts.prompts),
        "group_size": group,
        "prompt_tokens": sum(prompt) / len(prompt),
        "response_tokens": sum(response) / len(response),
        "prompt_share": sum(prompt) * group / (sum(prompt) * group + sum(response)),
        "reference": parts.models.reference is not None,
        "micro_batch_tokens": parts.spec.training.micro_batch_tokens,
        "parameters": sum(parameter.numel() for parameter in parts.models.actor.parameters()),
        "random_weights": random_weights,
        "response_tokens_spec": response_tokens,
    }
