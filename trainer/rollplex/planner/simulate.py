"""The step's real graph and schedules on a simulated clock.

Work items, what they wait for and when they may start are :mod:`rollplex.step`'s; only their seconds come from the
cost model. While both lanes are at work each is slowed: of an engine step the share ``u`` competes for the chip, and
what competes is served in turns, so that an engine step takes 1 + u times as long and the compute lane is as much
slower. That makes both at once 2 / (1 + u) times as fast as one after the other: 1.0 for a prefill (u = 1).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush

from rollplex.planner.cost import Cost
from rollplex.planner.hardware import Hardware
from rollplex.planner.workload import Workload
from rollplex.step.progress import Progress
from rollplex.step.schedule import COMPUTE, SUFFIXES, Schedule
from rollplex.step.timeline import StepTimeline, Timeline
from rollplex.step.work import ACTOR_MEDIA, REFERENCE_MEDIA, SHARED_MEDIA, Item, Kind, StepPlan, Unit, waits

# What vLLM takes by default: tokens of one engine step, and sequences that decode at once on a replica.
STEP_TOKENS = 8192
SEQUENCES = 256
_STEPS_TOGETHER = 32


def simulate(work: Workload, cost: Cost, hardware: Hardware, mode: str) -> StepTimeline:
    """One step of one train TP group and the rollout on its ranks; times begin at 0."""
    return _Step(work, cost, hardware, mode).run()


def step_plan(work: Workload) -> StepPlan:
    """The units of one train TP group, as :func:`rollplex.step.plan.plan_step` makes them of prompts."""
    units: list[Unit] = []
    for group in range(work.groups):
        members = tuple(range(work.group_size))
        for part in [members] if work.share_prefix else [(member,) for member in members]:
            medium = f"{group}" if work.share_prefix else f"{group}#{len(units)}"
            names = [medium] if work.media_tokens else []
            actor, reference = (SHARED_MEDIA,) * 2 if work.shared_tower else (ACTOR_MEDIA, REFERENCE_MEDIA)
            units.append(
                Unit(
                    group,
                    part,
                    split=work.share_prefix and work.prompt_tokens > 1,
                    actor_media=tuple(actor + name for name in names),
                    reference_media=tuple(reference + name for name in names),
                )
            )
    return StepPlan(
        (work.group_size,) * work.groups, tuple(units), reference=work.reference, trained_media=work.trained_tower
    )


@dataclass
class _Running:
    """Work on a lane: what is left of it in seconds alone, and when it began."""

    left: float
    start: float
    kind: str
    label: str
    tokens: int
    batch: int
    share: float = 1.0  # in which it competes
    steps: int = 1  # of the engine


class _Engine:
    """Continuous batching: prompts are read in order, a group's once; every decoding sequence gets a token a step.

    Steps in which nothing begins or ends are taken together.
    """

    def __init__(self, work: Workload, cost: Cost, lengths: list[list[int]], decode_share: float) -> None:
        self._work, self._cost, self._share = work, cost, decode_share
        self._lengths = lengths
        self._unread: deque[int] = deque(range(len(lengths)))
        self._unread_tokens = float(work.prompt_tokens)  # of the first of them
        self._ready: deque[tuple[int, int]] = deque()
        self._active: list[tuple[int, int, int]] = []  # a heap of (step it ends with, group, sample)
        self._limit = max(1, int(SEQUENCES * work.replicas))
        self._context = 0  # tokens that the active sequences attend to
        self._at = 0  # steps so far
        self._read: list[int] = []  # groups whose prompt the step in flight completes

    @property
    def unfinished(self) -> bool:
        return bool(self._unread or self._ready or self._active)

    def begin(self, now: float) -> _Running:
        """Start the next engine steps; all replicas step together, each with its share of the sequences."""
        while self._ready and len(self._active) < self._limit:
            group, sample = self._ready.popleft()
            heappush(self._active, (self._at + self._lengths[group][sample], group, sample))
            self._context += self._work.prompt_tokens
        replicas, batch = self._work.replicas, len(self._active)
        prefill = self._read_prompts(max(STEP_TOKENS * replicas - batch, 1))
        steps = 1 if prefill or not batch else min(self._active[0][0] - self._at, _STEPS_TOGETHER)
        self._at += steps
        mean = self._context + batch * (steps - 1) / 2
        self._context += batch * steps
        seconds = steps * self._cost.engine_step(batch / replicas, mean / replicas, prefill / replicas)
        kind, share = ("prefill", 1.0) if prefill else ("decode", self._share)
        return _Running(seconds, now, kind, "", round(prefill) + batch, batch, share, steps)

    def _read_prompts(self, room: float) -> float:
        read, self._read = 0.0, []
        while self._unread and read < room:
            take = min(room - read, self._unread_tokens)
            self._unread_tokens -= take
            read += take
            if self._unread_tokens <= 0:
                self._read.append(self._unread.popleft())
                self._unread_tokens = float(self._work.prompt_tokens)
        return read

    def end(self) -> list[tuple[int, int]]:
        """Finish the steps in flight; returns the sequences that are complete, as (group, sample)."""
        finished = []
        while self._active and self._active[0][0] <= self._at:
            _, group, sample = heappop(self._active)
            self._context -= self._work.prompt_tokens + self._lengths[group][sample]
            finished.append((group, sample))
        for group in self._read:
            self._ready.extend((group, sample) for sample in range(self._work.group_size))
        return finished


class _Step:
    def __init__(self, work: Workload, cost: Cost, hardware: Hardware, mode: str) -> None:
        self._work, self._cost = work, cost
        self._plan = step_plan(work)
        self._progress = Progress(waits(self._plan))
        self._schedule = Schedule(mode, work.run_ahead or len(self._plan.units), work.micro_batch_tokens)
        lengths = work.response_lengths(work.groups * work.group_size)
        self._lengths = [
            lengths[group * work.group_size : (group + 1) * work.group_size] for group in range(work.groups)
        ]
        self._engine = _Engine(work, cost, self._lengths, hardware.decode_share)
        self._now = 0.0
        self._timeline = Timeline(clock=lambda: self._now)

    def run(self) -> StepTimeline:
        progress = self._progress
        for item in list(progress.ready_of(Kind.DECODE)):
            progress.start(item)
        engine: _Running | None = None
        compute: _Running | None = None
        items: list[Item] = []
        changed = True  # since the schedule was last asked
        while not progress.done:
            if compute is None and changed and (items := self._schedule.next_pass(progress, self._rows)):
                for item in items:
                    progress.start(item)
                compute = self._compute(items)
            changed = False
            if engine is None and self._engine.unfinished:
                engine = self._engine.begin(self._now)
            slower = 1 + engine.share if engine and compute else 1.0
            lanes = [lane for lane in (engine, compute) if lane]
            step = min(lane.left for lane in lanes)
            self._now += step * slower
            for lane in lanes:
                lane.left -= step
            if engine and engine.left <= 0:
                self._record("decode", engine)
                changed = self._decoded(self._engine.end()) or changed
                engine = None
            if compute and compute.left <= 0:
                self._record("compute", compute)
                for item in items:
                    progress.complete(item)
                compute, changed = None, True
        return self._timeline.finish(1)

    def _record(self, lane: str, work: _Running) -> None:
        one = (self._now - work.start) / work.steps
        for step in range(work.steps):
            start = work.start + step * one
            self._timeline.record(lane, work.kind, work.label, start, start + one, work.tokens, work.batch)

    def _decoded(self, finished: list[tuple[int, int]]) -> bool:
        for group, sample in finished:
            self._progress.complete(Item(Kind.DECODE, group, sample))
            reward = Item(Kind.REWARD, group, sample)
            self._progress.start(reward)
            self._progress.complete(reward)
        # rewards and advantages are the CPUs': they cost the lanes nothing
        for item in list(self._progress.ready_of(Kind.ADVANTAGE)):
            self._progress.start(item)
            self._progress.complete(item)
        return bool(finished)

    def _unit_lengths(self, item: Item) -> tuple[int, ...]:
        unit = self._plan.units[item.index]
        return tuple(self._lengths[unit.group][member] for member in unit.members)

    def _rows(self, item: Item) -> int:
        return self._cost.suffix_rows(self._unit_lengths(item), self._plan.units[item.index].split)

    def _compute(self, items: list[Item]) -> _Running:
        kind = items[0].kind
        assert kind in COMPUTE
        rows = sum(self._rows(item) for item in items) if kind in SUFFIXES else 0
        tokens = {Kind.ENCODE: self._work.media_tokens, Kind.ENCODE_BACKWARD: self._work.media_tokens}
        prefix = self._work.prompt_tokens - 1
        seconds = sum(self._seconds(item) for item in items)
        label = ", ".join(str(item.index) for item in items)
        count = rows or tokens.get(kind, prefix if kind not in (Kind.UPDATE, Kind.PUBLISH) else 0)
        return _Running(seconds, self._now, kind.value, label, count, 0)

    def _seconds(self, item: Item) -> float:
        cost, kind = self._cost, item.kind
        if kind in SUFFIXES:
            split = self._plan.units[item.index].split
            price = cost.suffix if kind is Kind.REF_SUFFIX else cost.actor_suffix
            return price(self._unit_lengths(item), split)
        return {
            Kind.ENCODE: cost.encode,
            Kind.ENCODE_BACKWARD: cost.encode_backward,
            Kind.REF_PREFIX: cost.prefix,
            Kind.ACTOR_PREFIX: cost.prefix,
            Kind.PREFIX_BACKWARD: cost.prefix_backward,
            Kind.UPDATE: cost.update,
            Kind.PUBLISH: cost.publish,
        }[kind]()
