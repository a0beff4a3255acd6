"""``rollplex train``: sample, score, learn, publish; step after step, always on-policy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rollplex.api.errors import RunInterrupted, RunStopped, StepFailed
from rollplex.api.job import RollplexJob
from rollplex.checkpoint.place import Place
from rollplex.checkpoint.saver import Committed, SaveError
from rollplex.data.loader import PromptBatch
from rollplex.evaluation import evaluate, is_due
from rollplex.files import reason
from rollplex.parts import Trainer, open_trainer, read_input
from rollplex.resume import find_checkpoint, finished_line, refuse_unwritable
from rollplex.reward.pool import RewardError
from rollplex.rollout.protocol import SampleError
from rollplex.rollout.replay import Judged, ReplayError, save_rollouts
from rollplex.rollout.stall import StallError
from rollplex.step.metrics import Metrics, step_metrics
from rollplex.step.problems import problem_lines
from rollplex.step.runner import StepResult
from rollplex.step.timeline import Yardstick
from rollplex.stopping import StepDropped, Stop
from rollplex.telemetry.progress import Progress


def train(job: RollplexJob, name: str | None = None, fresh: bool = False) -> None:
    """Train a job on this machine, from its newest checkpoint where there is one; leaves ``runs/<name>``.

    Args:
        job: valid for ``context="train"``.
        name: of the run folder; the job's name by default.
        fresh: start anew; an earlier run is moved aside.

    Raises:
        JobError: something that the job points at cannot be used or has changed since the checkpoint, or the run's
            folder cannot be written; found before an engine starts.
        RunStopped: parity is broken, or too many updates in a row were not finite.
        RunInterrupted: by a signal, after saving.
        StepFailed: a step could not be finished, or the disk took no more.
    """
    place = Place.of_job(job.spec, name or job.metadata.name)
    with Progress(job.spec.training.steps) as progress:
        refuse_unwritable(place)
        found = find_checkpoint(place, fresh, progress.say)
        given = read_input(job, place, found, progress)
        if given.finished:
            progress.say(finished_line(place, given.start.step, job.spec.training.steps))
            return
        stop = Stop(progress.say, progress.release)
        with open_trainer(given, stop, progress) as trainer, stop.listening():
            run(trainer, progress)
        progress.say(f"{place.run}: metrics.jsonl, lanes.png, trace.json, checkpoints in {place.checkpoints}")


def run(trainer: Trainer, progress: Progress) -> None:
    """The loop of optimizer steps, and the save at whatever ends it."""
    yardstick, last = Yardstick(), trainer.spec.training.steps
    try:
        trainer.rollout.publish()
        if trainer.at.unevaluated:
            _make_up_for_evaluation(trainer, progress)
        while trainer.at.step < last and trainer.stop.exit_code is None:
            _step(trainer, yardstick, progress)
    except StepDropped:
        pass
    except (RunStopped, StepFailed):
        try:
            _save(trainer)  # the steps before were not in vain
        except StepFailed as unsaved:
            progress.say(str(unsaved))
        raise
    except OSError as error:
        if error.filename is None:
            raise
        # in the middle of who knows what: nothing is saved, and it is no fault of the job that a restart could not mend
        raise StepFailed(f"after step {trainer.at.step}: {error.filename}: {error.strerror}") from error
    _save(trainer)
    if trainer.at.step < last or trainer.at.unevaluated:
        code = trainer.stop.exit_code
        assert code is not None
        with_it = ", with its evaluation" if trainer.at.unevaluated else ""
        raise RunInterrupted(
            code, f"saved after step {trainer.at.step} of {last}; the same command goes on from there{with_it}"
        )


def _step(trainer: Trainer, yardstick: Yardstick, progress: Progress) -> None:
    step = trainer.at.step + 1
    # a process's first step runs phase by phase: it measures what work costs alone, and proves parity before anything
    # else. The mathematics is the same under every schedule, so a resumed run is the same as one that went on.
    first = trainer.at.step == trainer.start.step
    try:
        batch = trainer.loader.batch(step)
        result = trainer.runner.run(
            step, batch.prompts, trainer.sampling, mode="serial" if first else None, prove_parity=first
        )
    except (StallError, SampleError, ReplayError, RewardError) as error:
        raise StepFailed(f"step {step}: {error}") from error
    yardstick.observe(result.timeline)
    for line in problem_lines(step, result.prompts, result.scores):
        progress.say(line)
    metrics = step_metrics(result, yardstick)
    data = trainer.loader.metrics()
    metrics |= data | {"data/skipped": data["data/skipped"] + trainer.left_out}
    metrics["rollout/stalled"] = trainer.rollout.stalled
    try:
        _keep_rollouts(trainer, trainer.folder.rollouts, result)
        if result.updated.nonfinite:
            _keep_rollouts(trainer, trainer.folder.nonfinite, result)
        metrics |= _evaluate(trainer, step)
    finally:  # whatever becomes of these, the weights are those after this step
        _commit(trainer, batch, result, metrics, progress)
    _refuse_nonfinite(trainer)


def _make_up_for_evaluation(trainer: Trainer, progress: Progress) -> None:
    """Evaluate the step after which the run goes on: a signal or a fault came before its scores were there.

    Weights and seeds are the same, so they are what they would have been; the step's row gets them.
    """
    at = trainer.at
    found = _evaluate(trainer, at.step)
    progress.say(f"evaluation after step {at.step}, which was cut short: reward {found['eval/reward/mean']:.3f}")
    with _recording(trainer):
        trainer.folder.complete_step(at.step, found)
    trainer.at = replace(at, unevaluated=False, score=_score(found))
    try:
        trainer.saver.rate(trainer.at)
    except SaveError as error:
        raise StepFailed(str(error)) from error


def _evaluate(trainer: Trainer, step: int) -> Metrics:
    """Held-out rewards where this step is due for them; a SIGTERM gives them up."""
    spec = trainer.spec.evaluation
    if spec is None or not is_due(spec, step, trainer.spec.training.steps):
        return {}
    try:
        return evaluate(trainer.rollout, trainer.rewards, trainer.held_out, spec, trainer.sampling, trainer.stop.check)
    except (StallError, SampleError, RewardError) as error:
        raise StepFailed(f"evaluation after step {step}: {error}") from error


def _commit(trainer: Trainer, batch: PromptBatch, result: StepResult, metrics: Metrics, progress: Progress) -> None:
    """From here on the step counts: its row is written, and a checkpoint begun where one is due."""
    nonfinite = trainer.at.nonfinite_in_a_row
    if result.updated.nonfinite:
        nonfinite += 1
    elif not result.updated.skipped:
        nonfinite = 0
    score, evaluation, steps = _score(metrics), trainer.spec.evaluation, trainer.spec.training.steps
    trainer.at = Committed(
        step=result.step,
        position=batch.position,
        skipped_rows=dict(trainer.loader.skipped),
        skipped_ids=sorted(trainer.loader.skipped_ids),
        weights_version=result.weights_version,
        nonfinite_in_a_row=nonfinite,
        score=score,
        unevaluated=score is None and evaluation is not None and is_due(evaluation, result.step, steps),
    )
    due = trainer.saver.due(trainer.at)
    try:
        if due:
            metrics["seconds/checkpoint"] = trainer.saver.copy(trainer.at)
    except SaveError as error:
        raise StepFailed(str(error)) from error
    finally:
        with _recording(trainer):
            progress.step(trainer.folder.write_step(metrics, result.timeline))
    if due:
        with _recording(trainer):
            trainer.folder.sync()
        trainer.saver.start()


def _refuse_nonfinite(trainer: Trainer) -> None:
    count, limit = trainer.at.nonfinite_in_a_row, trainer.spec.training.max_skipped_updates
    if count >= limit:
        raise RunStopped(
            f"step {trainer.at.step}: loss or gradient was not finite in {count} steps in a row, the limit is "
            f"training.maxSkippedUpdates {limit}; the weights are those before them, {trainer.folder.nonfinite} has "
            "their rollouts for rollout.replay"
        )


def _save(trainer: Trainer) -> None:
    with _recording(trainer):
        trainer.folder.sync()
    try:
        trainer.saver.save(trainer.at)
    except SaveError as error:
        raise StepFailed(str(error)) from error


def _score(metrics: Metrics) -> float | None:
    score = metrics.get("eval/reward/mean")
    return None if score is None else float(score)


@contextmanager
def _recording(trainer: Trainer) -> Iterator[None]:
    """A run folder that takes no more ends the run as a failed step does."""
    try:
        yield
    except OSError as error:
        folder = trainer.folder.path
        raise StepFailed(
            f"after step {trainer.at.step}: the run folder {folder} cannot be written: {reason(error, folder)}; "
            "the same command goes on from the last checkpoint once it can"
        ) from error


def _keep_rollouts(trainer: Trainer, folder: Path, result: StepResult) -> None:
    judged = {
        (group, sample): Judged(
            score.value if score.parts else None, score.parts, float(result.advantages[group][sample])
        )
        for (group, sample), score in result.scores.items()
        if group in result.advantages
    }
    with _recording(trainer):
        save_rollouts(folder, result.step, result.prompts, result.responses.values(), judged)
