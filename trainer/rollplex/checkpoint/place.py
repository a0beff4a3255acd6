"""Where a run and its checkpoints lie, for the trainer that writes them and for whoever names the run later."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rollplex.api.errors import JobError
from rollplex.api.job import JobSpec
from rollplex.checkpoint.store import CheckpointStore

RUNS = Path("runs")


@dataclass(frozen=True)
class Place:
    """``run`` is the run folder."""

    run: Path
    checkpoints: Path

    @classmethod
    def of_job(cls, spec: JobSpec, name: str) -> Place:
        """``runs/NAME`` with its checkpoints inside; ``PATH/run`` beside them where ``checkpoint.path`` is set.

        Raises:
            JobError: a name that is no folder name.
        """
        if not name or "/" in name or name.startswith("."):
            raise JobError.at("--name", f'"{name}" is no name of a folder; a plain word is one')
        if spec.checkpoint.path is not None:
            path = Path(spec.checkpoint.path)
            return cls(path / "run", path)
        return cls(RUNS / name, RUNS / name / "checkpoints")

    @classmethod
    def of_run(cls, run: str) -> Place:
        """A run by its name (``demo``) or its folder (``runs/demo``, ``/checkpoints/clevrer/run``).

        Raises:
            JobError: there is no such run, or it has no checkpoint.
        """
        # a folder of that name that is no run (the model's, say) does not hide the run of that name
        folders = [Path(run)] if "/" in run else [Path(run), RUNS / run]
        for folder in folders:
            for place in (cls(folder, folder / "checkpoints"), cls(folder / "run", folder), cls(folder, folder.parent)):
                if place.run.is_dir() and CheckpointStore(place.checkpoints).steps():
                    return place
        folder = next((folder for folder in reversed(folders) if folder.is_dir()), folders[-1])
        if not folder.is_dir():
            known = sorted(path.name for path in RUNS.iterdir() if path.is_dir()) if RUNS.is_dir() else []
            raise JobError.at("RUN", f"{folder} is no folder; runs here: {', '.join(known) or 'none'}")
        raise JobError.at("RUN", f"{folder} has no checkpoint; one is saved every checkpoint.everySteps and at the end")
