"""Short fingerprints of what a run depends on and did not make: datasets, its model's folder, reward functions."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from rollplex.api.job import JobSpec

_SAMPLE = 1 << 16  # bytes read at each place of a large file


class _Cell(Protocol):
    @property
    def digest(self) -> str: ...


class _File(Protocol):
    @property
    def path(self) -> str: ...
    @property
    def cell(self) -> _Cell | None: ...


class DataRow(Protocol):
    """What is read of a row of a dataset."""

    @property
    def id(self) -> str: ...
    @property
    def fields(self) -> Mapping[str, Any]: ...
    @property
    def media(self) -> Sequence[_File]: ...


def of_rows(rows: Iterable[DataRow]) -> str:
    """Of a dataset: number of rows, and a hash over their columns in order and what is known of their media.

    That is the hash of bytes in a parquet file, and the size of a file of its own: it is not read for this, so a video
    replaced by another of the very same size goes unseen.
    """
    digest, count = hashlib.blake2b(digest_size=8), 0
    for row in rows:
        count += 1
        media = [file.cell.digest if file.cell else os.stat(file.path).st_size for file in row.media]
        digest.update(json.dumps([row.id, row.fields, media], sort_keys=True, default=_plain).encode())
    return f"{count} rows, hash {digest.hexdigest()}"


def of_folder(folder: str | Path) -> str:
    """Of a model's folder: a hash over its config and, for each weight file, its size, header and samples of it.

    The config counts as JSON: a program that wrote it anew, indented otherwise, has not changed the model.
    """
    digest = hashlib.blake2b(digest_size=8)
    files = sorted(Path(folder).glob("*.safetensors"))
    config = json.loads((Path(folder) / "config.json").read_text())
    digest.update(json.dumps(config, sort_keys=True).encode())
    for file in files:
        size = file.stat().st_size
        digest.update(f"{file.name} {size}".encode())
        with file.open("rb") as stream:
            for place in sorted({0, *(size * part // 8 for part in range(1, 8)), max(0, size - _SAMPLE)}):
                stream.seek(place)
                digest.update(stream.read(_SAMPLE))
    return f"{len(files)} weight files, hash {digest.hexdigest()}"


def of_code(reference: str) -> str:
    """Of a reward's ``FILE.py:FUNCTION``: a hash over the file; what it imports is not looked at."""
    try:
        content = Path(reference.rpartition(":")[0]).read_bytes()
    except OSError as error:  # whoever loads the function refuses it
        return f"cannot be read ({error.strerror})"
    return f"hash {hashlib.blake2b(content, digest_size=8).hexdigest()}"


def of_measurement(spec: JobSpec, held_out: Iterable[DataRow]) -> str | None:
    """Of what makes a held-out reward besides the weights; None without an evaluation.

    That is the held-out set by content and as the model sees it, how often and how it is sampled, and the rewards with
    the code of their functions. How often is evaluated, and what is measured beside the mean reward, is no part of it.
    """
    if spec.evaluation is None:
        return None
    rewards = [part.model_dump(mode="json") for part in spec.reward]
    code = [of_code(part.python) for part in spec.reward if part.python is not None]
    rollout, data = spec.rollout, spec.data
    sampling = [spec.evaluation.samples, rollout.temperature, rollout.max_tokens, rollout.stop]
    seen = [data.video.model_dump(mode="json"), data.max_prompt_tokens]
    measured = [of_rows(held_out), seen, sampling, rewards, code]
    return hashlib.blake2b(json.dumps(measured, sort_keys=True).encode(), digest_size=8).hexdigest()


def _plain(value: Any) -> str:
    """What JSON does not know: bytes of an image in a parquet file, numbers of numpy."""
    content = value if isinstance(value, bytes) else repr(value).encode()
    return hashlib.blake2b(content, digest_size=8).hexdigest()
