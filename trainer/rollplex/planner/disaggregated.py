"""The baseline that rolls out on some ranks and trains on the others, one after the other, and moves the weights."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rollplex.planner.cost import Cost
from rollplex.planner.hardware import Hardware
from rollplex.planner.simulate import simulate
from rollplex.planner.size import size_of
from rollplex.planner.workload import Workload
from rollplex.telemetry.events import compute_seconds, decode_seconds


@dataclass(frozen=True)
class Disaggregated:
    """Seconds of a synchronous step; ranks are idle while the others work."""

    rollout_ranks: int
    decode: float
    train: float
    transfer: float

    @property
    def seconds(self) -> float:
        return self.decode + self.train + self.transfer


def disaggregated(work: Workload, hardware: Hardware, rollout_ranks: int) -> Disaggregated:
    """The step with ``rollout_ranks`` of the ranks rolling out; on-policy, so nothing overlaps.

    The transfer: every rollout rank receives its shard and the tower over its network port.
    """
    apart = replace(work, rollout_ranks=rollout_ranks)
    step = simulate(apart, Cost(apart, hardware), hardware, "serial")
    size = size_of(work.shape)
    moved = (size.language / work.rollout_tensor + size.vision) * work.item_bytes
    train = compute_seconds(step)
    train.pop("publish", None)  # the transfer takes its place
    return Disaggregated(rollout_ranks, decode_seconds(step), sum(train.values()), moved / hardware.network_rate)


def split_of(work: Workload) -> int:
    """Rollout ranks of the job, else the half of them that both tensor degrees divide (at least one replica)."""
    if work.rollout_ranks:
        return work.rollout_ranks
    unit = max(work.train_tensor, work.rollout_tensor)
    return max(unit, work.ranks // 2 // unit * unit)
