"""Batches of prompts, decoded ahead in worker processes.

Which rows make a batch depends on the seed and on which rows can be used, never on timing. A row that cannot be used
(unreadable, too long, a decoder past its time limit) is skipped and the sampler's next row takes its place, so that
every batch is full. The sampler goes on behind the last row used: nothing is shown twice an epoch. A row is tried again
in each epoch, but counted once a run and logged once a process.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rollplex.batch import Prompt
from rollplex.data.dataset import Row
from rollplex.data.reader import PendingPrompt, Reader, prompt_or_reason
from rollplex.data.sampler import Sampler

WHERE = "spec.data.train"


@dataclass(frozen=True)
class PromptBatch:
    """The prompts of one step; ``position`` is the sampler's after them."""

    step: int
    prompts: tuple[Prompt, ...]
    position: int


class Loader:
    """Serves the batches of a run, one step after the other; the next one is decoded while the current one is used.

    Args:
        reader: decodes the rows; closing it is the caller's.
        rows: the training set; what is too long by its text alone is left out here.
        prompts_per_step: size of a batch.
        seed: of the order.
        first_step: the first step that will be asked for.
        position: the sampler's at that step, as ``PromptBatch.position`` of the step before gave it; left out, it is
            the one of a run that skipped nothing.
        skipped: ``skipped`` of the loader that went before.
        skipped_ids: its ``skipped_ids``.
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
        skipped: Mapping[str, int] | None = None,
        skipped_ids: Iterable[str] = (),
    ) -> None:
        self._reader = reader
        self._rows = rows = reader.short_enough(rows, WHERE)
        self._size = prompts_per_step
        # media are equal by content where it is known: questions about copies of one video belong together too
        groups = [row.media or None for row in rows] if reader.data.group_by_media else None
        self._sampler = Sampler(len(rows), seed, groups, prompts_per_step)
        self._next_step = first_step
        # the first step of a run is 1
        self._position = (first_step - 1) * prompts_per_step if position is None else position
        self._requested = self._position  # first position not yet requested
        self._window: deque[PendingPrompt] = deque()
        self._last: PromptBatch | None = None
        self._unusable: dict[str, str] = {}  # row id: why, when it was last tried
        self._logged: set[str] = set()
        self.skipped = Counter(skipped)  # rows by reason, of all batches served
        self.skipped_ids = set(skipped_ids)  # of these rows

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
        result = prompt_or_reason(pending, WHERE, quiet=pending.row.id in self._logged)
        if isinstance(result, Prompt):
            self._unusable.pop(pending.row.id, None)
        else:
            self._logged.add(pending.row.id)
            self._unusable[pending.row.id] = result
            if len(self._unusable) == len(self._rows):
                raise self._reader.nothing_left(Counter(self._unusable.values()), WHERE)
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
        while len(prompts) < self._size:
            self._request_until(self._position + self._size)
            pending = self._window.popleft()
            result = self._try(pending)
            self._position += 1
            if isinstance(result, Prompt):
                prompts.append(result)
            elif pending.row.id not in self.skipped_ids:
                self.skipped_ids.add(pending.row.id)
                self.skipped[result] += 1
        self._request_until(self._position + self._size)
        self._next_step = step + 1
        self._last = PromptBatch(step, tuple(prompts), self._position)
        return self._last

    def metrics(self) -> dict[str, int]:
        """What the run's data cost so far, by the names of metrics.jsonl."""
        cache = self._reader.cache
        return {
            "data/skipped": self.skipped.total(),
            "data/cache_hits": cache["hits"],
            "data/cache_misses": cache["misses"],
        }

    def _request_until(self, position: int) -> None:
        while self._requested < position:
            self._window.append(self._reader.request(self._rows[self._sampler.row(self._requested)]))
            self._requested += 1
