"""Schedules: when a ready item of the compute lane may start, and which goes first (pure).

The work items are the same under all three; a schedule only says "not yet".

serial   phase after phase, as ROLL, verl and TRL do it: decode, reference, actor.
overlap  prefixes under decode, suffixes after it (the paper).
stream   also suffixes and prefix backwards of finished groups, under the decode of the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rollplex.step.progress import Progress
from rollplex.step.work import ACTOR_MEDIA, Item, Kind

SUFFIXES = (Kind.REF_SUFFIX, Kind.ACTOR_SUFFIX)
REFERENCE = (Kind.REF_PREFIX, Kind.REF_SUFFIX)
BACKWARDS = (Kind.PREFIX_BACKWARD, Kind.ENCODE_BACKWARD)
COMPUTE = (Kind.ENCODE, Kind.REF_PREFIX, Kind.ACTOR_PREFIX, *SUFFIXES, *BACKWARDS, Kind.UPDATE, Kind.PUBLISH)


@dataclass(frozen=True)
class Schedule:
    """A mode and its bounds.

    ``run_ahead``: units that may hold a graph (of their media, of their prefix) at once. ``pack_tokens``: input tokens
    of one suffix pass. ``deterministic``: gradients are added in unit order and a pack never mixes units, so that
    ``stream`` gives the same bits whatever finishes first.
    """

    mode: str
    run_ahead: int
    pack_tokens: int
    deterministic: bool = False

    def __post_init__(self) -> None:
        if self.mode not in ("serial", "overlap", "stream"):
            raise ValueError(f"schedule mode is {self.mode!r}; choose from serial, overlap, stream")

    def may_start(self, item: Item, progress: Progress) -> bool:
        """Whether a ready item may start now."""
        if not progress.may_open_graph(item, self.run_ahead):
            return False
        if self.mode == "serial":
            return self._serial(item, progress)
        if self.mode == "overlap":
            return self._overlap(item, progress)
        if self.deterministic and item.kind in (Kind.ACTOR_SUFFIX, Kind.ENCODE_BACKWARD):
            # media in turn too: when a group turns out to have no loss must not change the order of their backwards
            return item == progress.next_of(item.kind)
        return True

    def _serial(self, item: Item, progress: Progress) -> bool:
        if not _decoded(progress):
            return False
        for_reference = item.kind is Kind.ENCODE and not item.media.startswith(ACTOR_MEDIA)
        return for_reference or item.kind in REFERENCE or progress.all_complete(Kind.REF_PREFIX, Kind.REF_SUFFIX)

    def _overlap(self, item: Item, progress: Progress) -> bool:
        if item.kind is Kind.REF_SUFFIX:
            return progress.all_complete(Kind.DECODE)
        if item.kind is Kind.ACTOR_SUFFIX:
            # all at once, so that packs do not depend on which reward came first
            return progress.all_complete(Kind.ADVANTAGE, Kind.REF_SUFFIX)
        return True

    def next_pass(self, progress: Progress, cost: Callable[[Item], int]) -> list[Item]:
        """The item to start now, with further suffixes of its kind up to ``pack_tokens``; empty: nothing may start.

        Backwards go first, since they free memory; then prefixes, as far as ``run_ahead`` lets them: they wait for
        nobody, and suffixes that were kept waiting for them share larger packs. Kind by kind, in unit order.
        """
        if self.mode == "serial" and not _decoded(progress):
            return []  # as may_start would say of each
        for kind in _BY_PRIORITY:
            ready = sorted(progress.ready_of(kind), key=_in_turn)
            able = (item for item in ready if self.may_start(item, progress))
            first = next(able, None)
            if first is None:
                continue
            chosen = [first]
            if kind in SUFFIXES and not self.deterministic:
                room = self.pack_tokens - cost(first)
                for item in able:
                    room -= cost(item)
                    if room < 0:
                        break
                    chosen.append(item)
            return chosen
        return []


def _decoded(progress: Progress) -> bool:
    return progress.all_complete(Kind.DECODE, Kind.REWARD)


def _in_turn(item: Item) -> tuple[int, str]:
    """As plain values, since many items may be compared for every pass."""
    return (item.index, item.media)


def _rank(kind: Kind) -> tuple[int, str]:
    if kind in BACKWARDS:
        return (0, kind.value)
    if kind in SUFFIXES:
        return (3, kind.value)
    return (1 if kind in (Kind.ENCODE, Kind.REF_PREFIX) else 2, kind.value)


_BY_PRIORITY = sorted(COMPUTE, key=_rank)
