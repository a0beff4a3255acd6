"""Vision features that outlive a step: those of towers that do not change."""

from __future__ import annotations

from collections import OrderedDict

from rollplex.policy.cut import Features


class FeatureCache:
    """Least recently used features of frozen towers, up to ``limit_bytes``."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._held: OrderedDict[str, Features] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    def get(self, name: str) -> Features | None:
        found = self._held.get(name)
        if found is not None:
            self._held.move_to_end(name)
        return found

    def put(self, name: str, features: Features) -> None:
        if features.requires_grad:
            raise ValueError(f"features {name!r} carry a graph of this step and cannot outlive it")
        if name in self._held or features.tensor.nbytes > self._limit:
            return  # one that does not fit would push all others out and then itself
        self._held[name] = features
        self._bytes += features.tensor.nbytes
        while self._bytes > self._limit:
            _, dropped = self._held.popitem(last=False)
            self._bytes -= dropped.tensor.nbytes
