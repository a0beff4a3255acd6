"""Batches of prompts, decoded ahead in worker processes.

Which rows make a batch depends on the seed and on which rows can be used, never on timing. A row that cannot be used
(unreadable, too long, a decoder past its time limit) is skipped and counted, and the sampler's next row takes its
place, so that every batch is full. The sampler goes on behind the last row used: nothing is shown twice an epoch.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import torch

from rollplex.api.data import DataSpec
from rollplex.api.errors import JobError
from rollplex.batch import Media, Prompt
from rollplex.data.dataset import MediaFile, Row
from rollplex.data.decode import decode, default_workers, import_decoders
from rollplex.data.pixels import MediaError, pixel_rules
from rollplex.data.prompt import PromptBuilder, PromptError, PromptTooLongError
from rollplex.data.sampler import Sampler
from rollplex.data.video import VideoBudget
from rollplex.processes import CallTimeoutError, WorkerDiedError, WorkerPool

log = logging.getLogger(__name__)

Skip = (MediaError, PromptTooLongError)
AHEAD = 32  # rows decoded ahead where no batch size says how many


class Reader:
    """Turns rows into prompts: decoding in worker processes, token ids here. Close it at the end.

    Args:
        folder: the model's Hugging Face folder.
        data: the job's ``spec.data``.

    Raises:
        JobError: the folder is missing something, or its model is not supported.
    """

    def __init__(self, folder: str | Path, data: DataSpec) -> None:
        self.data = data
        try:
            self._rules = pixel_rules(folder)
            self._builder = PromptBuilder(folder, data.max_prompt_tokens)
        except (ValueError, OSError) as error:
            raise JobError.at("spec.model.path", str(error).strip().partition("\n")[0]) from None
        video = data.video
        self._budget = VideoBudget(video.fps, video.max_frames, video.max_pixels_per_frame)
        workers = default_workers() if data.workers == "auto" else data.workers
        self._pool = WorkerPool(workers, "decode", import_decoders)
        # rows about one video that are in flight together share its decoding
        self._decoding: WeakValueDictionary[MediaFile, _Decoding] = WeakValueDictionary()

    def request(self, row: Row) -> PendingPrompt:
        """Start to decode a row's media."""
        return PendingPrompt(self._builder, row, [self._decode(file) for file in row.media])

    def _decode(self, file: MediaFile) -> _Decoding:
        running = self._decoding.get(file)
        if running is None:
            future = self._pool.submit(
                decode, file.kind, file.path, self._budget, self._rules, timeout=self.data.decode_timeout_seconds
            )
            running = self._decoding[file] = _Decoding(file, future)
        return running

    def read_all(self, rows: Sequence[Row], where: str) -> list[Prompt]:
        """Prompts of all rows that can be used, in order (a held-out set); ``where`` is the job's field that names it.

        Raises:
            JobError: none can be used, or messages and media of a row do not match.
        """
        waiting: deque[PendingPrompt] = deque()
        prompts: list[Prompt] = []
        skipped: Counter[str] = Counter()
        following = iter(rows)
        while True:
            while len(waiting) < AHEAD and (row := next(following, None)) is not None:
                waiting.append(self.request(row))
            if not waiting:
                break
            prompt = _prompt_or_reason(waiting.popleft(), where)
            if isinstance(prompt, str):
                skipped[prompt] += 1
            else:
                prompts.append(prompt)
        if not prompts:
            raise self.nothing_left(skipped, where)
        return prompts

    def nothing_left(self, skipped: Mapping[str, int], where: str) -> JobError:
        """The error for a dataset of which the filters leave no row."""
        limits = {
            "too_long": f"spec.data.maxPromptTokens is {self.data.max_prompt_tokens}",
            "timeout": f"spec.data.decodeTimeoutSeconds is {self.data.decode_timeout_seconds:g}",
        }
        reasons = [
            f"{reason} {count}" + (f" ({limits[reason]})" if reason in limits else "")
            for reason, count in sorted(skipped.items())
        ]
        return JobError.at(where, f"no row can be used; skipped: {', '.join(reasons)}")

    def close(self) -> None:
        """Kill the workers."""
        self._pool.close()


class _Decoding:
    """One medium in flight, shared by the rows that need it."""

    def __init__(self, file: MediaFile, future: Future[Any]) -> None:
        self._file, self._future = file, future
        self._media: Media | None = None

    def media(self) -> Media:
        """Wait for it; raises MediaError."""
        if self._media is None:
            try:
                (grid, seconds), values = self._future.result()
            except CallTimeoutError as error:
                raise MediaError("timeout", self._file.path, str(error)) from None
            except WorkerDiedError as error:
                raise MediaError("crashed", self._file.path, str(error)) from None
            patches = torch.from_numpy(values).view(torch.float32).view(grid[0] * grid[1] * grid[2], -1)
            self._media = Media(self._file.kind, patches, grid, seconds)
        return self._media


@dataclass(frozen=True)
class PendingPrompt:
    """A row whose media are being decoded."""

    _builder: PromptBuilder
    row: Row
    _decoding: Sequence[_Decoding]

    def prompt(self) -> Prompt:
        """Wait for the media and build the prompt; raises MediaError, PromptTooLongError or PromptError."""
        row = self.row
        media = [decoding.media() for decoding in self._decoding]
        return self._builder.build(row.id, row.messages, media, answer=row.answer, row=row.fields)


def _prompt_or_reason(pending: PendingPrompt, where: str) -> Prompt | str:
    """The prompt, or in a word why the row is skipped, after logging it."""
    try:
        return pending.prompt()
    except Skip as error:
        log.warning("row %s (%s) skipped: %s", pending.row.id, pending.row.modality, error)
        return error.reason if isinstance(error, MediaError) else "too_long"
    except PromptError as error:
        raise JobError.at(where, str(error)) from None


@dataclass(frozen=True)
class PromptBatch:
    """The prompts of one step; ``position`` is the sampler's after them, ``skipped`` counts rows by reason."""

    step: int
    prompts: tuple[Prompt, ...]
    position: int
    skipped: Mapping[str, int] = field(default_factory=dict)


class Loader:
    """Serves the batches of a run, one step after the other; the next one is decoded while the current one is used.

    Args:
        reader: decodes the rows; closing it is the caller's.
        rows: the training set.
        prompts_per_step: size of a batch.
        seed: of the order.
        first_step: the first step that will be asked for.
        position: the sampler's at that step, as ``PromptBatch.position`` of the step before gave it; left out, it is
            the one of a run that skipped nothing.
    """

    def __init__(
        self,
        reader: Reader,
        rows: Sequence[Row],
        *,
        prompts_per_step: int,
        seed: int,
        first_step: int = 1,
        position: int | None = None,
    ) -> None:
        self._reader, self._rows = reader, rows
        self._size = prompts_per_step
        self._sampler = Sampler(len(rows), seed)
        self._next_step = first_step
        # the first step of a run is 1
        self._position = (first_step - 1) * prompts_per_step if position is None else position
        self._requested = self._position  # first position not yet requested
        self._window: deque[PendingPrompt] = deque()
        self._last: PromptBatch | None = None
        self._unusable: dict[str, str] = {}  # row id: why, when it was last tried
        self.skipped: Counter[str] = Counter()  # of all batches served

    def check(self) -> None:
        """See before any engine starts that rows decode and make prompts: look until the first one that does.

        Raises:
            JobError: no row of the set can be used, or a row's messages and media do not match.
        """
        ahead = 0
        while True:
            self._request_until(self._position + max(ahead + 1, self._size))
            if isinstance(self._try(self._window[ahead]), Prompt):
                return
            ahead += 1

    def _try(self, pending: PendingPrompt) -> Prompt | str:
        """The prompt or why not; raises JobError once that is so for every row of the set."""
        result = _prompt_or_reason(pending, "spec.data.train")
        if isinstance(result, Prompt):
            self._unusable.pop(pending.row.id, None)
        else:
            self._unusable[pending.row.id] = result
            if len(self._unusable) == len(self._rows):
                raise self._reader.nothing_left(Counter(self._unusable.values()), "spec.data.train")
        return result

    def batch(self, step: int) -> PromptBatch:
        """The batch of a step: the next one, or once more the last one.

        Raises:
            JobError: no row of the set can be used, or a row's messages and media do not match.
            ValueError: another step than those two.
        """
        if self._last is not None and step == self._last.step:
            return self._last
        if step != self._next_step:
            raise ValueError(f"step is {step}; the loader goes on with {self._next_step}")
        self._last = None  # its media need not stay in memory while we wait
        prompts: list[Prompt] = []
        skipped: Counter[str] = Counter()
        while len(prompts) < self._size:
            self._request_until(self._position + self._size)
            result = self._try(self._window.popleft())
            self._position += 1
            if isinstance(result, Prompt):
                prompts.append(result)
            else:
                skipped[result] += 1
        self._request_until(self._position + self._size)
        self._next_step = step + 1
        self.skipped += skipped
        self._last = PromptBatch(step, tuple(prompts), self._position, skipped)
        return self._last

    def _request_until(self, position: int) -> None:
        while self._requested < position:
            self._window.append(self._reader.request(self._rows[self._sampler.row(self._requested)]))
            self._requested += 1
