"""``rollplex train``: sample, score, learn, publish; step after step, always on-policy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from rollplex import setup
from rollplex.api.errors import JobError, StepFailed
from rollplex.api.job import JobSpec, RollplexJob
from rollplex.api.load import resolved_yaml
from rollplex.batch import Prompt
from rollplex.data.columns import columns_of
from rollplex.data.dataset import read_rows
from rollplex.data.loader import Loader
from rollplex.data.reader import Reader
from rollplex.evaluation import blanked, mean_reward
from rollplex.reward.pool import RewardError, RewardPool, refuse_if_all_failed
from rollplex.rollout.protocol import Rollout, SampleError, Sampling
from rollplex.rollout.replay import ReplayError, save_rollouts
from rollplex.rollout.stall import StallError
from rollplex.step.metrics import Metrics, step_metrics
from rollplex.step.runner import StepResult, StepRunner
from rollplex.step.timeline import Timeline, Yardstick
from rollplex.telemetry.progress import Progress
from rollplex.telemetry.run import RunFolder

RUNS = Path("runs")


@dataclass
class Trainer:
    """The parts of a run."""

    spec: JobSpec
    sampling: Sampling
    loader: Loader
    held_out: list[Prompt]
    rollout: Rollout
    rewards: RewardPool
    runner: StepRunner


def train(job: RollplexJob, name: str | None = None) -> None:
    """Train a job on this machine; leaves ``runs/<name>``.

    Args:
        job: valid for ``context="train"``.
        name: of the run folder; the job's name by default.

    Raises:
        JobError: something that the job points at cannot be used; found before an engine starts.
        RunStopped: parity is broken or a gradient is not finite.
        StepFailed: a step could not be finished.
    """
    with Progress(job.spec.training.steps) as progress, open_trainer(job, progress) as (trainer, resolved):
        tensorboard = job.spec.tracking.tensorboard
        folder = _run_folder(name or job.metadata.name, resolved, tensorboard, progress)
        with folder:
            run(trainer, folder, progress)
        progress.say(f"{folder.path}: metrics.jsonl, lanes.png, trace.json")


def run(trainer: Trainer, folder: RunFolder, progress: Progress) -> None:
    """The loop of optimizer steps."""
    spec, yardstick = trainer.spec, Yardstick()
    trainer.rollout.publish()
    for step in range(1, spec.training.steps + 1):
        batch = trainer.loader.batch(step)
        # the first step runs phase by phase: it measures what work costs alone, and proves parity before anything else
        try:
            result = trainer.runner.run(step, batch.prompts, trainer.sampling, mode="serial" if step == 1 else None)
            refuse_if_all_failed(list(result.scores.values()))
        except (StallError, SampleError, ReplayError, RewardError) as error:
            raise StepFailed(f"step {step}: {error}") from error
        yardstick.observe(result.timeline)
        save_rollouts(folder.rollouts, step, result.prompts, result.responses.values(), _rewards(result))
        metrics = step_metrics(result, yardstick)
        metrics |= trainer.loader.metrics()
        metrics["rollout/stalled"] = trainer.rollout.stalled
        metrics |= _evaluate(trainer, step)
        progress.step(folder.write_step(metrics, result.timeline))


def _rewards(result: StepResult) -> dict[tuple[int, int], float]:
    return {key: score.value for key, score in result.scores.items()}


def _evaluate(trainer: Trainer, step: int) -> Metrics:
    """Held-out rewards where this step is due for them."""
    spec = trainer.spec.evaluation
    if spec is None or not (step % spec.every_steps == 0 or step == trainer.spec.training.steps):
        return {}

    def score(prompts: list[Prompt]) -> float:
        return mean_reward(trainer.rollout, trainer.rewards, prompts, spec.samples, trainer.sampling)

    metrics: Metrics = {"eval/reward/mean": score(trainer.held_out)}
    if spec.blank_frames:
        metrics["eval/blank/reward/mean"] = score([blanked(prompt) for prompt in trainer.held_out])
    return metrics


@contextmanager
def open_trainer(job: RollplexJob, progress: Progress) -> Iterator[tuple[Trainer, RollplexJob]]:
    """Build a run's parts, what can be wrong first and the engine last; also yields the job with its stop ids."""
    with ExitStack() as stack:
        with progress.phase("reading the data"):
            columns = columns_of(job.spec.data)
            rows = read_rows(job.spec.data.train, "spec.data.train", columns)
            evaluation = job.spec.evaluation
            held_out_rows = read_rows(evaluation.data, "spec.evaluation.data", columns) if evaluation else []
            torch.manual_seed(job.spec.training.seed)
            job = setup.with_stop_ids(job, setup.model_shape(job.spec))
            spec = job.spec
            reader = Reader(spec.model.path, spec.data)
            stack.callback(reader.close)
            loader = Loader(reader, rows, prompts_per_step=spec.training.prompts_per_step, seed=spec.training.seed)
            loader.check()
            held_out = reader.read_all(held_out_rows, "spec.evaluation.data") if held_out_rows else []
            rewards = RewardPool(spec.reward, workers=2)
            stack.callback(rewards.close)
        with progress.phase("loading the model"):
            models = setup.build_models(spec)
        with progress.phase("starting the rollout engine"):
            rollout = setup.build_rollout(spec, models)
            stack.callback(rollout.close)
        runner = StepRunner(spec, models, rollout, rewards, Timeline())
        yield Trainer(spec, setup.sampling(spec), loader, held_out, rollout, rewards, runner), job


def _run_folder(name: str, job: RollplexJob, tensorboard: bool, progress: Progress) -> RunFolder:
    try:
        return RunFolder.create(RUNS, name, resolved_yaml(job), tensorboard=tensorboard, say=progress.say)
    except ValueError as error:
        raise JobError.at("--name", str(error)) from None
