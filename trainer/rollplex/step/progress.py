"""How far a step is: which items are complete, ready, or still wait, and whose graphs are held (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rollplex.step.work import Item, Kind


def _turn(item: Item, needs: set[Item]) -> tuple[int, Item]:
    """Sorts in unit order; the backward of a medium comes with the last unit that reads it."""
    return (max(need.index for need in needs) if item.kind is Kind.ENCODE_BACKWARD else 0, item)


class Progress:
    """Which items are complete, ready, or still wait (not thread-safe: the step's lock guards it)."""

    def __init__(self, graph: dict[Item, set[Item]]) -> None:
        self._missing = {item: len(needs) for item, needs in graph.items()}
        self._followers: dict[Item, list[Item]] = {item: [] for item in graph}
        for item, needs in graph.items():
            for need in needs:
                self._followers[need].append(item)
        # in order: the first of a kind is then known without looking at the others
        self._incomplete: dict[Kind, dict[Item, None]] = {kind: {} for kind in Kind}
        for item in sorted(graph, key=lambda item: _turn(item, graph[item])):
            self._incomplete[item.kind][item] = None
        self._ready: dict[Kind, set[Item]] = {kind: set() for kind in Kind}
        for item, missing in self._missing.items():
            if missing == 0:
                self._ready[item.kind].add(item)
        # units that will hold a graph of the actor's between two items, in order, until they do; and those that do
        self._opens = {item: units for item in graph if (units := self._units_opened_by(item))}
        self._without_graph = dict.fromkeys(sorted({unit for units in self._opens.values() for unit in units}))
        self._live: set[int] = set()

    def start(self, item: Item) -> None:
        """Take a ready item out of the ready set."""
        self._ready[item.kind].remove(item)
        if (unit := self._opened_by(item)) is not None and unit in self._without_graph:
            del self._without_graph[unit]
            self._live.add(unit)

    def complete(self, item: Item) -> None:
        """Mark a started item complete; what waited only for it becomes ready."""
        del self._incomplete[item.kind][item]
        if item.kind is self._closed_by(item.index):
            self._live.discard(item.index)
            self._without_graph.pop(item.index, None)
        for follower in self._followers[item]:
            self._missing[follower] -= 1
            if self._missing[follower] == 0 and follower in self._incomplete[follower.kind]:
                self._ready[follower.kind].add(follower)

    def skip(self, items: Iterable[Item]) -> None:
        """Count items as complete that will not run, whatever they wait for; none of them may be at work."""
        for item in items:
            if item in self._incomplete[item.kind]:
                self._ready[item.kind].discard(item)
                self.complete(item)

    @property
    def ready(self) -> set[Item]:
        """Items that wait for nothing and are not started."""
        return set().union(*self._ready.values())

    def ready_of(self, kind: Kind) -> Collection[Item]:
        """The ready items of one kind; a step has thousands of others."""
        return self._ready[kind]

    @property
    def live_graphs(self) -> int:
        """Units of which the actor holds a graph: of their media (of a trained tower) or their prefix."""
        return len(self._live)

    def may_open_graph(self, item: Item, limit: int) -> bool:
        """Whether at most ``limit`` units hold a graph once this item runs; units take their turn in order.

        In order, since a unit out of its turn would hold the room that the one before it needs to end.
        """
        if item not in self._opens:
            return True
        unit = self._opened_by(item)
        if unit is None or unit in self._live:
            return True
        return len(self._live) < limit and unit == next(iter(self._without_graph), None)

    def _opened_by(self, item: Item) -> int | None:
        """The first unit whose graph begins with this item, of those that have not ended."""
        for unit in self._opens.get(item, ()):
            if unit in self._live or unit in self._without_graph:
                return unit
        return None

    def _units_opened_by(self, item: Item) -> list[int]:
        if item.kind is Kind.ACTOR_PREFIX:
            return [item.index]
        if item.kind is Kind.ENCODE and Item(Kind.ENCODE_BACKWARD, media=item.media) in self._missing:
            readers = (Kind.ACTOR_PREFIX, Kind.ACTOR_SUFFIX)
            return sorted({follower.index for follower in self._followers[item] if follower.kind in readers})
        return []

    def _closed_by(self, unit: int) -> Kind:
        split = Item(Kind.PREFIX_BACKWARD, unit) in self._missing
        return Kind.PREFIX_BACKWARD if split else Kind.ACTOR_SUFFIX

    def next_of(self, kind: Kind) -> Item | None:
        """The first item of a kind, in unit order, that is not complete yet."""
        return next(iter(self._incomplete[kind]), None)

    def all_complete(self, *kinds: Kind) -> bool:
        return not any(self._incomplete[kind] for kind in kinds)

    @property
    def done(self) -> bool:
        return not any(self._incomplete.values())
