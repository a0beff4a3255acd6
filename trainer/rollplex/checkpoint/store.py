"""The folder of a run's checkpoints. A checkpoint is complete or invisible.

``step-000020/`` holds shards of tensors, ``state.json`` and, written last, ``manifest.json`` with the size and hash of
every other file. It is written as ``.writing-step-000020``, synced, and only then renamed: a name that begins with
``step-`` is a promise. One that goes is renamed to ``.removing-...`` first. Whatever a killed process leaves behind
therefore begins with a dot, and :meth:`CheckpointStore.sweep` takes it away.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open

from rollplex.files import FileRecord, record_of, remove_folder, rename_durably, sync_folder, write_file
from rollplex.weights.shards import SHARD_BYTES, Entry, plan_shards, shard_name, write_shard

FORMAT = 1
MANIFEST, STATE, STEM = "manifest.json", "state.json", "tensors"
_STEP = re.compile(r"step-(\d{6,})")


class DamagedError(ValueError):
    """A checkpoint's files are not those of its manifest."""


@dataclass(frozen=True)
class Checkpoint:
    """A published checkpoint. ``score`` is the held-out reward of its weights, where that was measured.

    ``measured`` is the fingerprint of how: two scores compare only where it is the same. A manifest of before it was
    written has none.
    """

    path: Path
    step: int
    written: str  # UTC, ISO 8601
    score: float | None
    measured: str | None
    files: tuple[FileRecord, ...]

    def manifest(self) -> dict[str, Any]:
        """What manifest.json says."""
        files = [asdict(file) for file in self.files]
        about = {"format": FORMAT, "step": self.step, "written": self.written}
        return {**about, "score": self.score, "measured": self.measured, "files": files}

    def verify(self) -> None:
        """Read every file and compare it with the manifest; raises DamagedError that names the first bad one."""
        for known in self.files:
            try:
                found = record_of(self.path / known.name)
            except OSError as error:
                raise DamagedError(f"{known.name} cannot be read ({error.strerror})") from None
            if found.bytes != known.bytes:
                raise DamagedError(f"{known.name} has {found.bytes} bytes instead of {known.bytes}")
            if found.blake2b != known.blake2b:
                raise DamagedError(f"the content of {known.name} has changed (its hash is another)")

    def state(self) -> dict[str, Any]:
        """state.json."""
        state: dict[str, Any] = json.loads((self.path / STATE).read_text())
        return state

    def tensors(self, prefix: str = "") -> Iterator[tuple[str, torch.Tensor]]:
        """Tensors whose name begins with ``prefix``, without it, one at a time."""
        for file in self.files:
            if file.name.endswith(".safetensors"):
                with safe_open(self.path / file.name, framework="pt") as handle:
                    for name in handle.keys():  # noqa: SIM118 (not a mapping)
                        if name.startswith(prefix):
                            yield name.removeprefix(prefix), handle.get_tensor(name)


class Scored(NamedTuple):
    """A held-out reward, and the fingerprint of what was measured."""

    score: float
    measured: str | None


class CheckpointStore:
    """Writes, finds and removes checkpoints under one folder; only one process may write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def steps(self) -> list[int]:
        """Steps of the published checkpoints, ascending."""
        if not self.folder.is_dir():
            return []
        matches = (_STEP.fullmatch(name) for name in os.listdir(self.folder))
        return sorted(int(match[1]) for match in matches if match)

    def read(self, step: int) -> Checkpoint:
        """The checkpoint of a step, by its manifest alone; raises DamagedError."""
        path = self.path(step)
        try:
            manifest = json.loads((path / MANIFEST).read_text())
            if manifest["format"] != FORMAT:
                raise DamagedError(f"its format is {manifest['format']}, this version reads {FORMAT}")
            files = tuple(FileRecord(**file) for file in manifest["files"])
            score, measured = manifest["score"], manifest.get("measured")
            return Checkpoint(path, step, manifest["written"], score, measured, files)
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, DamagedError):
                raise
            raise DamagedError(f"{MANIFEST} cannot be read ({error})") from None

    def newest(self, bad: Callable[[int, str], object]) -> Checkpoint | None:
        """The newest checkpoint whose files are all right; ``bad`` gets step and fault of each one passed over."""
        for step in reversed(self.steps()):
            try:
                found = self.read(step)
                found.verify()
            except DamagedError as error:
                bad(step, str(error))
            else:
                return found
        return None

    def write(
        self, step: int, tensors: Mapping[str, Entry], state: Mapping[str, Any], score: float | None = None,
        shard_bytes: int = SHARD_BYTES, *, measured: str | None = None,
    ) -> Checkpoint:  # fmt: skip
        """Save a checkpoint and publish it, or leave nothing of it.

        Raises OSError; FileExistsError where the step has one already.
        """
        if self.path(step).exists():
            raise FileExistsError(f"{self.path(step)} is there already")
        self.folder.mkdir(parents=True, exist_ok=True)
        aside = self.folder / f".writing-{self.path(step).name}"
        if aside.exists():
            remove_folder(aside)
        os.mkdir(aside)
        try:
            found = self._fill(aside, step, tensors, state, score, shard_bytes, measured)
        except OSError:
            with suppress(OSError):  # on a full disk its part would take the room that the next save needs
                remove_folder(aside)
            raise
        rename_durably(aside, found.path)
        return found

    def _fill(
        self, aside: Path, step: int, tensors: Mapping[str, Entry], state: Mapping[str, Any], score: float | None,
        shard_bytes: int, measured: str | None,
    ) -> Checkpoint:  # fmt: skip
        """Write every file of a checkpoint, the manifest last."""
        shards = plan_shards(tensors, shard_bytes)
        files = [
            write_shard(aside / shard_name(STEM, number, len(shards)), {name: tensors[name] for name in names})
            for number, names in enumerate(shards, start=1)
        ]
        files.append(write_file(aside / STATE, [_json(state)]))
        written = datetime.now(UTC).isoformat(timespec="seconds")
        found = Checkpoint(self.path(step), step, written, score, measured, tuple(files))
        write_file(aside / MANIFEST, [_json(found.manifest())])
        sync_folder(aside)
        return found

    def rate(self, step: int, score: float, measured: str | None) -> None:
        """Note the held-out reward of a checkpoint that was saved without one. Raises OSError, DamagedError."""
        rated = replace(self.read(step), score=score, measured=measured)
        aside = rated.path / f".writing-{MANIFEST}"
        aside.unlink(missing_ok=True)
        write_file(aside, [_json(rated.manifest())])
        rename_durably(aside, rated.path / MANIFEST)

    def remove(self, step: int) -> None:
        """Take a checkpoint away: at once for every reader, then file by file."""
        going = self.folder / f".removing-{self.path(step).name}"
        if going.exists():
            remove_folder(going)
        rename_durably(self.path(step), going)
        remove_folder(going)

    def set_aside(self, step: int) -> Path:
        """Rename a damaged checkpoint so that nothing takes it for one; returns its new path."""
        path = self.folder / f"damaged-{self.path(step).name}"
        number = 1
        while path.exists():
            number += 1
            path = self.folder / f"damaged-{self.path(step).name}.{number}"
        rename_durably(self.path(step), path)
        return path

    def sweep(self) -> None:
        """Take away what a killed process left half-written or half-removed."""
        if self.folder.is_dir():
            for name in os.listdir(self.folder):
                if name.startswith((".writing-step-", ".removing-step-")):
                    remove_folder(self.folder / name)

    def prune(self, keep_last: int, keep_best: int) -> None:
        """Keep the newest and the best (of equally good ones the newest), remove the others.

        The best are those of the newest score's measurement: where the evaluation was changed, the old best stay until
        the new one has a score, and only then make room.
        """
        steps, scored = self.steps(), self.scored()
        measured = scored[max(scored)].measured if scored else None
        alike = [(found.score, step) for step, found in scored.items() if found.measured == measured]
        best = [step for _, step in sorted(alike)[-keep_best:]] if keep_best else []
        for step in set(steps) - set(steps[-keep_last:]) - set(best):
            self.remove(step)

    def scored(self) -> dict[int, Scored]:
        """Checkpoints with a held-out reward, by step, ascending; one whose manifest cannot be read has none."""
        found = {}
        for step in self.steps():
            with suppress(DamagedError):
                checkpoint = self.read(step)
                if checkpoint.score is not None:
                    found[step] = Scored(checkpoint.score, checkpoint.measured)
        return found

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:06d}"


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()
