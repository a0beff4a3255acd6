"""vLLM's weight-transfer interface over memory that both sides already share.

The engine asks its worker to init, start, update and finish as with any other backend; here an update re-lays-out the
copies and makes sure that everything else still *is* the trainer's memory. Objects cannot travel through vLLM's
configuration, so :func:`offer` gives out a handle for them.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

from rollplex.weights.share import RolloutWeights

BACKEND = "rollplex"

_handles = itertools.count()
_offered: weakref.WeakValueDictionary[str, RolloutWeights] = weakref.WeakValueDictionary()


def offer(weights: RolloutWeights) -> str:
    """A handle under which vLLM's loader and transfer engine find ``weights``, as long as the caller keeps them."""
    handle = f"weights-{next(_handles)}"
    _offered[handle] = weights
    return handle


def offered(handle: str) -> RolloutWeights:
    """The weights behind a handle; LookupError once their owner has dropped them."""
    try:
        return _offered[handle]
    except KeyError:
        raise LookupError(f"no shared weights behind {handle!r}: keep the RolloutWeights alive") from None


@dataclass
class SharedInit(WeightTransferInitInfo):  # type: ignore[misc]
    """``handle``: of the weights, from :func:`offer`."""

    handle: str


@dataclass
class SharedUpdate(WeightTransferUpdateInfo):  # type: ignore[misc]
    """``version``: the weight version that this update makes."""

    version: int


class SharedWeightsTransfer(WeightTransferEngine):  # type: ignore[misc]
    """Transfer by reference; ``version`` is the last one received."""

    init_info_cls = SharedInit
    update_info_cls = SharedUpdate
    version = 0

    def init_transfer_engine(self, init_info: SharedInit) -> None:
        self._weights: RolloutWeights | None = offered(init_info.handle)

    def start_weight_update(self) -> None:
        if self._weights is None:
            raise RuntimeError("the weight transfer has been shut down")

    def receive_weights(self, update_info: SharedUpdate) -> None:
        assert self._weights is not None
        self._weights.check(dict(self.model.named_parameters(remove_duplicate=False)))
        self._weights.refresh()
        self.version = update_info.version

    def finish_weight_update(self) -> None:
        """Nothing is in flight once :meth:`receive_weights` has returned."""

    def shutdown(self) -> None:
        self._weights = None

    @staticmethod
    def trainer_send_weights(iterator: Iterator[Any], trainer_args: Any) -> None:
        """Abstract in vLLM 0.26: the side that pushes. Shared memory has no such side."""
        raise NotImplementedError("weights are shared, not sent")


def register() -> None:
    """Make ``WeightTransferConfig(backend=BACKEND)`` known to vLLM; once per process."""
    if BACKEND not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(BACKEND, SharedWeightsTransfer)
