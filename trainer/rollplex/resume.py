"""Going on where a run stopped: which checkpoint, whether the job still fits it, and its state put back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from rollplex.api.errors import JobError
from rollplex.api.job import RollplexJob
from rollplex.checkpoint import contents
from rollplex.checkpoint.changes import harmless_changes
from rollplex.checkpoint.place import Place
from rollplex.checkpoint.saver import Committed
from rollplex.checkpoint.store import Checkpoint, CheckpointStore
from rollplex.files import reason
from rollplex.files import refuse_unwritable as refuse_unwritable_folder
from rollplex.memory.optimizer import SavedOptimizer
from rollplex.step.runner import Models
from rollplex.telemetry.run import refuse_running

Say = Callable[[str], object]


def refuse_unwritable(place: Place) -> None:
    """Raise JobError where run or checkpoints cannot be written: an engine takes minutes to start, a disk none."""
    for folder in (place.run, place.checkpoints):
        try:
            refuse_unwritable_folder(folder)
        except OSError as error:
            raise JobError.at(
                "spec.checkpoint.path",
                f"{folder} cannot be written: {reason(error, folder)}; make room there or make it writable, or let "
                "checkpoint.path name another folder (without it a run is runs/NAME where the command is started)",
            ) from None


def finished_line(place: Place, step: int, last: int) -> str:
    """What a run says that has nothing left to do: ``last`` is the target now, ``step`` where it stands."""
    reached = f"step {step} of {last} is reached" if step == last else f"it is at step {step}, training.steps is {last}"
    return f"{place.run}: finished, {reached}; a larger training.steps goes on, --fresh starts anew"


def find_checkpoint(place: Place, fresh: bool, say: Say) -> Checkpoint | None:
    """The newest whole checkpoint of a run, or None, as for one that starts ``fresh``.

    Damaged ones are moved aside, and what a killed save left is taken away; ``say`` gets a line for each damaged one.

    Raises:
        JobError: a trainer that is alive writes there.
    """
    try:
        refuse_running(place.run)
    except ValueError as error:
        raise JobError.at("--name", str(error)) from None
    if fresh:
        return None
    store = CheckpointStore(place.checkpoints)
    store.sweep()
    damaged: list[tuple[int, str]] = []
    found = store.newest(lambda step, fault: damaged.append((step, fault)))
    for step, fault in damaged:
        instead = f"step {found.step} is taken" if found else "there is no other"
        say(f"checkpoint of step {step} is damaged: {fault}; kept as {store.set_aside(step)}, {instead}")
    return found


def head_of(job: RollplexJob, rows: list[Any]) -> dict[str, Any]:
    """What every checkpoint of a run says of its job and of what it was made from."""
    document = job.model_dump(mode="json", by_alias=True, exclude_none=True)
    code = {
        f"spec.reward.{index}.python": contents.of_code(part.python)
        for index, part in enumerate(job.spec.reward)
        if part.python is not None
    }
    made_from = {"data": contents.of_rows(rows), "model": contents.of_folder(Path(job.spec.model.path))}
    return {"job": json.loads(json.dumps(document)), "contents": made_from | code}


def accept(found: Checkpoint, head: dict[str, Any], say: Say) -> Committed:
    """Where the run goes on; ``say`` gets that, and what has changed in the job without harm.

    Raises:
        JobError: what the job fixes has changed.
    """
    state = found.state()
    harmless = harmless_changes(state, head["job"], head["contents"])
    say(f"going on after step {found.step} (saved {found.written})")
    for change in harmless:
        say(f"  changed since then: {change}")
    start = Committed(**{name: state[name] for name in Committed.__dataclass_fields__ if name in state})
    # an evaluation that was made up for is noted in the manifest alone: the state's hash is in there
    return start if found.score is None else replace(start, unevaluated=False, score=found.score)


def state_tensors(models: Models) -> dict[str, torch.Tensor]:
    """Everything that a step changes and the next one reads, by name; not copied."""
    found = {f"actor/{name}": parameter.detach() for name, parameter in models.actor.named_parameters()}
    found |= {f"optimizer/{name}": tensor for name, tensor in _saved(models).tensors().items()}
    # samples have seeds of their own and nothing else draws; what a later part of the trainer draws is the same too
    return found | {"rng/torch": torch.get_rng_state()}


@torch.no_grad()
def load_tensors(found: Checkpoint, models: Models) -> None:
    """Put a checkpoint's tensors back, one at a time.

    Raises:
        JobError: they are of another model.
    """
    parameters = dict(models.actor.named_parameters())
    missing = set(parameters)
    try:
        for name, tensor in found.tensors("actor/"):
            parameters[name].copy_(tensor)
            missing.discard(name)
        if missing:
            raise ValueError(f"{len(missing)} parameters are not in it, first {sorted(missing)[0]!r}")
        _saved(models).load(found.tensors("optimizer/"))
    except (ValueError, KeyError, RuntimeError) as error:
        raise JobError.at("spec.checkpoint.path", f"{found.path} does not fit the model: {error}") from None


def load_random_state(found: Checkpoint) -> None:
    """Go on with the checkpoint's random numbers; last, since building an engine draws some."""
    for _, tensor in found.tensors("rng/torch"):
        torch.set_rng_state(tensor)


def _saved(models: Models) -> SavedOptimizer:
    optimizer = models.optimizer
    assert isinstance(optimizer, SavedOptimizer), "an optimizer that trains a run can be saved"
    return optimizer
