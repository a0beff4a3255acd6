"""The parts of a run, built from its job: what can be wrong first, the engine last."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import torch

from rollplex import setup
from rollplex.api.errors import JobError
from rollplex.api.job import JobSpec, RollplexJob
from rollplex.api.load import resolved_yaml
from rollplex.batch import Prompt
from rollplex.checkpoint import contents
from rollplex.checkpoint.place import Place
from rollplex.checkpoint.saver import Committed, Saver
from rollplex.checkpoint.store import Checkpoint, CheckpointStore
from rollplex.data.columns import columns_of
from rollplex.data.dataset import Row, read_rows
from rollplex.data.loader import WHERE, Loader
from rollplex.data.reader import Reader
from rollplex.evaluation import is_due
from rollplex.resume import accept, head_of, load_random_state, load_tensors, state_tensors
from rollplex.reward.pool import RewardPool
from rollplex.rollout.protocol import Rollout, Sampling
from rollplex.step.runner import StepRunner
from rollplex.step.timeline import Timeline
from rollplex.stopping import Stop
from rollplex.telemetry.progress import Progress
from rollplex.telemetry.run import RunFolder
from rollplex.telemetry.tracker import refuse_missing


@dataclass
class Trainer:
    """The parts; ``at`` is where the run stands, ``start`` where this process took it up.

    ``left_out`` rows of the training set never reach the loader, since their text alone is too long.
    """

    spec: JobSpec
    sampling: Sampling
    loader: Loader
    left_out: int
    held_out: list[Prompt]
    rollout: Rollout
    rewards: RewardPool
    runner: StepRunner
    saver: Saver
    folder: RunFolder
    stop: Stop
    start: Committed
    at: Committed


@dataclass
class Input:
    """A job with its stop ids spelled out, the rows that it names, and where it goes on."""

    job: RollplexJob
    rows: list[Row]
    held_out: list[Row]
    place: Place
    found: Checkpoint | None
    start: Committed
    head: dict[str, object]
    measured: str | None

    @property
    def finished(self) -> bool:
        return self.start.step >= self.job.spec.training.steps and not self.start.unevaluated


def read_input(job: RollplexJob, place: Place, found: Checkpoint | None, progress: Progress) -> Input:
    """Read what the job names, and see whether its checkpoint still fits.

    Raises:
        JobError: something cannot be read or is not installed, or has changed since the checkpoint.
    """
    refuse_missing(job.spec.tracking)
    with progress.phase("reading the data"):
        columns = columns_of(job.spec.data)
        rows = read_rows(job.spec.data.train, "spec.data.train", columns)
        evaluation = job.spec.evaluation
        held_out = read_rows(evaluation.data, "spec.evaluation.data", columns) if evaluation else []
        job = setup.resolved(job, setup.model_shape(job.spec))
        head = head_of(job, rows)
        measured = contents.of_measurement(job.spec, held_out)
    start = accept(found, head, progress.say) if found else Committed()
    if start.unevaluated and not (evaluation and is_due(evaluation, start.step, job.spec.training.steps)):
        start = replace(start, unevaluated=False)  # the job no longer asks for it
    return Input(job, rows, held_out, place, found, start, head, measured)


@contextmanager
def open_trainer(given: Input, stop: Stop, progress: Progress) -> Iterator[Trainer]:
    """Build a run's parts, in the state of the checkpoint that it goes on from; closes them at the end."""
    spec, start = given.job.spec, given.start
    torch.manual_seed(spec.training.seed)
    with ExitStack() as stack:
        with progress.phase("decoding the first media"):
            reader = Reader(spec.model.path, spec.data)
            stack.callback(reader.close)
            loader = Loader(
                reader,
                given.rows,
                prompts_per_step=spec.training.prompts_per_step,
                seed=spec.training.seed,
                first_step=start.step + 1,
                position=start.position,
                skipped=start.skipped_rows,
                skipped_ids=start.skipped_ids,
            )
            loader.check()
            left_out = reader.left_out[WHERE]
            held_out = reader.read_all(given.held_out, "spec.evaluation.data") if given.held_out else []
            rewards = RewardPool(spec.reward, workers=2)
            stack.callback(rewards.close)
        with progress.phase("loading the model"):
            models = setup.build_models(spec)
            if given.found is not None:
                load_tensors(given.found, models)
        with progress.phase("starting the rollout engine"):
            rollout = setup.build_rollout(spec, models, start.weights_version)
            stack.callback(rollout.close)
        runner = StepRunner(spec, models, rollout, rewards, Timeline(), check=stop.check)
        folder = stack.enter_context(_run_folder(given, progress))
        # once more, since what was imported and built meanwhile drew an amount that depends on what was there before
        torch.manual_seed(spec.training.seed)
        if given.found is not None:
            load_random_state(given.found)
        store = CheckpointStore(given.place.checkpoints)
        saver = Saver(
            store, spec.checkpoint, spec.training.steps, given.head, lambda: state_tensors(models), given.measured
        )
        yield Trainer(
            spec=spec,
            sampling=setup.sampling(spec),
            loader=loader,
            left_out=left_out,
            held_out=held_out,
            rollout=rollout,
            rewards=rewards,
            runner=runner,
            saver=saver,
            folder=folder,
            stop=stop,
            start=start,
            at=start,
        )


def _run_folder(given: Input, progress: Progress) -> RunFolder:
    job, tracking, place = resolved_yaml(given.job), given.job.spec.tracking, given.place
    try:
        if given.found is not None:
            return RunFolder.resume(
                place.run, job, given.start.step, tensorboard=tracking.tensorboard, wandb=tracking.wandb
            )
        return RunFolder.create(
            place.run,
            job,
            tensorboard=tracking.tensorboard,
            wandb=tracking.wandb,
            checkpoints=place.checkpoints,
            say=progress.say,
        )
    except JobError:
        raise
    except ValueError as error:
        raise JobError.at("--name", str(error)) from None
