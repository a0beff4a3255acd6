"""From rows to prompts: media decoded in worker processes or found in the cache, token ids made here."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import torch

from rollplex.api.base import quantity_bytes
from rollplex.api.data import CacheSpec, DataSpec
from rollplex.api.errors import JobError
from rollplex.batch import Media, Prompt
from rollplex.data.cache import FrameCache, default_folder, open_cache
from rollplex.data.dataset import Row
from rollplex.data.decode import decode, default_workers, import_decoders
from rollplex.data.media import MediaFile
from rollplex.data.pixels import MediaError, pixel_rules
from rollplex.data.prompt import PromptBuilder, PromptError, PromptTooLongError
from rollplex.data.video import VideoBudget
from rollplex.processes import CallTimeoutError, WorkerDiedError, WorkerPool

log = logging.getLogger(__name__)

Skip = (MediaError, PromptTooLongError)
AHEAD = 32  # rows decoded ahead where no batch size says how many


class Reader:
    """Turns rows into prompts. Close it at the end.

    ``cache`` counts media by "hits" and "misses", since the reader was made; ``left_out`` the rows that
    :meth:`short_enough` dropped, by the field that names their set.

    Args:
        folder: the model's Hugging Face folder.
        data: the job's ``spec.data``.

    Raises:
        JobError: the folder is missing something, its model is not supported, or the cache cannot be written.
    """

    def __init__(self, folder: str | Path, data: DataSpec) -> None:
        self.data = data
        self.cache: Counter[str] = Counter(hits=0, misses=0)
        self.left_out: Counter[str] = Counter()
        try:
            self._rules = pixel_rules(folder)
            self._builder = PromptBuilder(folder, data.max_prompt_tokens)
        except (ValueError, OSError) as error:
            raise JobError.at("spec.model.path", str(error).strip().partition("\n")[0]) from None
        video = data.video
        self._budget = VideoBudget(video.fps, video.max_frames, video.max_pixels_per_frame)
        self._frames = _open_cache(data.cache)
        self._tidying = threading.Thread()
        workers = default_workers() if data.workers == "auto" else data.workers
        self._pool = WorkerPool(workers, "decode", import_decoders)
        # rows about one video that are in flight together share its decoding
        self._decoding: WeakValueDictionary[MediaFile, _Decoding] = WeakValueDictionary()

    def request(self, row: Row) -> PendingPrompt:
        """Start to decode a row's media."""
        return PendingPrompt(self._builder, row, [self._decode(file) for file in row.media])

    def _decode(self, file: MediaFile) -> _Decoding:
        running = self._decoding.get(file)
        if running is not None and running.failed:
            running = None  # whatever still holds it: a file that failed once is tried again
        if running is None:
            limit = self.data.decode_timeout_seconds
            future = self._pool.submit(decode, file, self._budget, self._rules, self._frames, timeout=limit)
            running = self._decoding[file] = _Decoding(file, future, self._count)
        return running

    def _count(self, cached: bool) -> None:
        self.cache["hits" if cached else "misses"] += 1
        if not (cached or self._frames is None or self._tidying.is_alive()):
            self._tidying = threading.Thread(target=self._frames.tidy, name="tidy-cache", daemon=True)
            self._tidying.start()

    def short_enough(self, rows: Sequence[Row], where: str) -> Sequence[Row]:
        """The rows but those whose text alone is above ``maxPromptTokens``; nothing is decoded for that.

        Raises:
            JobError: none is left.
        """
        kept = [row for row in rows if not self._builder.text_too_long(row.id, row.messages)]
        dropped = self.left_out[where] = len(rows) - len(kept)
        if not dropped:
            return rows
        if not kept:
            raise self.nothing_left({"too_long": dropped}, where)
        limit = self.data.max_prompt_tokens
        log.warning("%s: %d of %d rows left out: text alone above maxPromptTokens %d", where, dropped, len(rows), limit)
        return kept

    def read_all(self, rows: Sequence[Row], where: str) -> list[Prompt]:
        """Prompts of all rows that can be used, in order (a held-out set); ``where`` is the job's field that names it.

        Raises:
            JobError: none can be used, or messages and media of a row do not match.
        """
        waiting: deque[PendingPrompt] = deque()
        prompts: list[Prompt] = []
        skipped: Counter[str] = Counter()
        following = iter(self.short_enough(rows, where))
        while True:
            while len(waiting) < AHEAD and (row := next(following, None)) is not None:
                waiting.append(self.request(row))
            if not waiting:
                break
            prompt = prompt_or_reason(waiting.popleft(), where)
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


def _open_cache(spec: CacheSpec) -> FrameCache | None:
    """The job's cache. Where only the default folder cannot be written, the run goes on without one."""
    folder = default_folder() if spec.path is None else Path(spec.path)
    try:
        return open_cache(folder, quantity_bytes(spec.max_bytes))
    except OSError as error:
        if spec.path is not None:
            raise JobError.at("spec.data.cache.path", f"{folder} cannot be written: {error.strerror}") from None
        text = "no cache of decoded media: %s cannot be written (%s); data.cache.path may name another folder"
        log.warning(text, folder, error.strerror)
        return None


class _Decoding:
    """One medium in flight, shared by the rows that need it."""

    def __init__(self, file: MediaFile, future: Future[Any], count: Callable[[bool], None]) -> None:
        self._file, self._future, self._count = file, future, count
        self._media: Media | None = None

    @property
    def failed(self) -> bool:
        return self._future.done() and (self._future.cancelled() or self._future.exception() is not None)

    def media(self) -> Media:
        """Wait for it; raises MediaError."""
        if self._media is None:
            try:
                (grid, seconds, repeated, cached), values = self._future.result()
            except CallTimeoutError as error:
                raise MediaError("timeout", self._file.name, str(error)) from None
            except WorkerDiedError as error:
                raise MediaError("crashed", self._file.name, str(error)) from None
            self._count(cached)
            patches = torch.from_numpy(values).view(torch.float32).view(grid[0] * grid[1] * grid[2], -1)
            self._media = Media(self._file.kind, patches, grid, seconds, repeated)
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


def prompt_or_reason(pending: PendingPrompt, where: str, quiet: bool = False) -> Prompt | str:
    """The prompt, or in a word why the row is skipped, which is logged unless ``quiet``."""
    try:
        return pending.prompt()
    except Skip as error:
        if not quiet:
            log.warning("row %s (%s) skipped: %s", pending.row.id, pending.row.modality, error)
        return error.reason if isinstance(error, MediaError) else "too_long"
    except PromptError as error:
        raise JobError.at(where, str(error)) from None
