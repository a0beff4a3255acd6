"""A rank's bytes by what they are, when they live, and what could be done about them: the plan's input (pure).

Sizes follow from the model's config, the layout and the batch. ``naive`` is what colocation without sharing holds:
every state of every phase at once, the rollout's own weights, prompts in three caches, one rank's optimizer whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rollplex.memory.ledger import StateClass
from rollplex.memory.plan import Option, Residency, Tensors, plan
from rollplex.planner.cost import OPTIMIZER_BYTES, Cost
from rollplex.planner.hardware import GiB, Hardware
from rollplex.planner.simulate import SEQUENCES
from rollplex.planner.size import size_of
from rollplex.planner.workload import Workload
from rollplex.weights.layout import shares

# What no plan moves: the driver's context, NCCL's buffers, captured graphs, kernels' workspaces.
RESIDUAL = 3 * GiB
# The streamed optimizer's buffers: chunks of master, two moments and gradient, three times each.
OPTIMIZER_WORKING_SET = 9 * (64 << 20)
# Part of a GPU that is planned with where the job sets no budget.
BUDGET_SHARE = 0.95

PHASES: dict[str, tuple[str, ...]] = {
    "serial": ("decode", "reference", "actor", "update", "publish"),
    "overlap": ("decode, prefixes", "reference suffixes", "actor", "update", "publish"),
    "stream": ("decode, prefixes, suffixes", "last suffixes", "update", "publish"),
}


@dataclass(frozen=True)
class Bytes:
    """Sizes of everything on one rank, by name."""

    weights: int
    tower: int
    rollout_weights: int  # a whole second copy in the engine's layout
    rollout_copies: int
    gathered: int
    gradients: int
    optimizer: int  # this rank's part
    optimizer_unsharded: int
    engine_cache: int
    engine_cache_unshared: int  # without a common prefix: every response has its prompt's
    boundary_of_group: int
    boundary_gradients: int  # fp32, of the groups whose suffixes are at work
    activations_of_group: int
    inputs_of_group: int  # what is left of them if layers are recomputed
    layer_of_group: int
    suffix: int
    suffix_inputs: int
    logits: int
    tower_activations: int  # of one prompt's media
    tower_inputs: int


def bytes_of(work: Workload) -> Bytes:
    """Sizes from config, layout and batch."""
    size, item, train = size_of(work.shape), work.item_bytes, work.train_tensor
    found = shares(work.shape, train, work.rollout_tensor, item)
    shard = size.language // train
    kv_train = size.kv_values * item // train
    saved = size.saved_whole * item + size.saved_cut * item // train
    # a prompt that is not shared is a part of its responses' packs
    prompt, pack = (work.prompt_tokens - 1) * work.share_prefix, work.micro_batch_tokens
    sequences = min(SEQUENCES, int(work.groups * work.group_size / work.replicas) or 1)
    held_groups = max(1, sequences // work.group_size)
    response = work.max_response_tokens
    kv_rollout = size.kv_values * item // work.rollout_tensor
    patches = work.media_tokens * work.shape.vision.merge**2
    fp32_master = item == 4  # then the weights are the masters
    per_parameter = OPTIMIZER_BYTES - (4 if fp32_master else 0)
    trained_tower = size.vision if work.trained_tower else 0
    return Bytes(
        weights=shard * item,
        tower=size.vision * item,
        rollout_weights=size.language // work.rollout_tensor * item,
        rollout_copies=found.copied_bytes,
        gathered=found.gathered_bytes,
        gradients=4 * (shard + trained_tower),
        optimizer=per_parameter * (shard + trained_tower) // work.train_data,
        optimizer_unsharded=per_parameter * (shard + trained_tower),
        engine_cache=kv_rollout * (held_groups * work.prompt_tokens + sequences * response),
        engine_cache_unshared=kv_rollout * sequences * (work.prompt_tokens + response),
        boundary_of_group=kv_train * prompt,
        boundary_gradients=2 * max(1, pack // max(1, work.group_size * work.response_tokens)) * kv_train * prompt,
        activations_of_group=saved * prompt,
        inputs_of_group=size.layer_input * item * prompt,
        layer_of_group=saved // work.shape.layers * prompt,
        suffix=saved * pack,
        suffix_inputs=(size.layer_input * item + saved // work.shape.layers) * pack,
        logits=2 * 4 * pack * work.shape.vocabulary // train,
        # media are split over the ranks of a train TP group
        tower_activations=size.patch_saved * item * patches // train if work.trained_tower else 0,
        tower_inputs=(size.patch_saved + work.shape.vision.hidden * work.shape.vision.depth**2)
        // work.shape.vision.depth
        * item
        * patches
        // train
        if work.trained_tower
        else 0,
    )


def naive(work: Workload) -> dict[str, int]:
    """Every term of colocation without sharing, all of them at once; bytes of a rank.

    Weights of trainer, rollout and reference; the optimizer whole on every data-parallel rank; activations of one
    micro-batch of whole samples, kept; keys and values of prompts and responses in the engine, of one micro-batch in
    actor and reference.
    """
    size, b = size_of(work.shape), bytes_of(work)
    samples = max(1, work.micro_batch_tokens // (work.prompt_tokens + work.response_tokens))
    kv_pack = size.kv_values * work.item_bytes // work.train_tensor * work.micro_batch_tokens
    models = 3 if work.reference else 2
    return {
        "actor weights": b.weights,
        "rollout weights": b.rollout_weights,
        **({"reference weights": b.weights} if work.reference else {}),
        f"vision tower x {models}": models * b.tower,
        "gradients": b.gradients,
        "optimizer": b.optimizer_unsharded,
        "activations": b.suffix + samples * b.tower_activations,
        "logits": b.logits,
        "engine KV": b.engine_cache_unshared,
        "actor KV": kv_pack,
        **({"reference KV": kv_pack} if work.reference else {}),
        "residual": RESIDUAL,
    }


@dataclass(frozen=True)
class Choices:
    """What the job lets the plan decide; ``run_ahead`` has the seconds that each number costs a step."""

    activations: str = "auto"  # or keep | offload | recompute
    optimizer: str = "auto"  # or hbm | host
    run_ahead: Mapping[int, float] | None = None  # None: as many as there are groups


def residency(
    work: Workload, cost: Cost, hardware: Hardware, mode: str, budget: int, choices: Choices | None = None
) -> Residency:
    """The plan of one rank under ``budget`` bytes."""
    phases, b, choices = PHASES[mode], bytes_of(work), choices or Choices()
    at = _Phases(mode)
    last = len(phases) - 1
    fixed = [
        Tensors("actor weights", StateClass.SNAPSHOT, b.weights, 0, last),
        Tensors("vision tower", StateClass.SNAPSHOT, b.tower, 0, last),
        Tensors("rollout's copies", StateClass.SNAPSHOT, b.rollout_copies, 0, at.decode),
        Tensors("rows gathered from peers", StateClass.PHASE_LOCAL, b.gathered, 0, at.decode),
        Tensors("engine KV", StateClass.PHASE_LOCAL, b.engine_cache, 0, at.decode),
        Tensors("gradients", StateClass.PHASE_LOCAL, b.gradients, at.actor, at.update),
        Tensors("logits", StateClass.PHASE_LOCAL, b.logits, at.actor, at.suffixes),
        Tensors("boundary KV gradients", StateClass.BOUNDARY, b.boundary_gradients, at.actor, at.suffixes),
        Tensors("residual", StateClass.PERMANENT, RESIDUAL, 0, last),
    ]
    decisions = {
        "optimizer": _allowed(_optimizer(b, cost, at, last), choices.optimizer),
        "activations": _allowed(
            _graphs(work, cost, hardware, b, at, choices.run_ahead or {work.groups: 0.0}), choices.activations
        ),
    }
    if work.reference:
        # every group's reference prefix comes before the first suffix may
        kv = work.groups * b.boundary_of_group
        fixed.append(Tensors("reference boundary KV", StateClass.BOUNDARY, kv, at.reference, at.reference_end))
        decisions["reference weights"] = _reference(work, hardware, b, at, last)
    return plan(phases, fixed, decisions, budget)


def _allowed(options: Sequence[Option], choice: str) -> list[Option]:
    return [option for option in options if choice == "auto" or option.name.split(",")[0] == choice]


class _Phases:
    """Where in a schedule's phases things begin and end."""

    def __init__(self, mode: str) -> None:
        names = PHASES[mode]
        self.decode = 0
        self.update = names.index("update")
        self.suffixes = self.update - 1
        self.actor = {"serial": 2, "overlap": 2, "stream": 0}[mode]
        self.actor_prefix = {"serial": 2, "overlap": 0, "stream": 0}[mode]
        self.reference = {"serial": 1, "overlap": 0, "stream": 0}[mode]
        self.reference_end = {"serial": 1, "overlap": 1, "stream": 1}[mode]


def _optimizer(b: Bytes, cost: Cost, at: _Phases, last: int) -> list[Option]:
    host = Tensors("optimizer's working set", StateClass.PHASE_LOCAL, OPTIMIZER_WORKING_SET, at.update, at.update)
    hbm = Tensors("masters and moments", StateClass.PERMANENT, b.optimizer, 0, last)
    slower = max(0.0, cost.update_with(True) - cost.update_with(False))
    return [Option("hbm", (hbm,)), Option("host", (host,), slower)]


def _reference(work: Workload, hardware: Hardware, b: Bytes, at: _Phases, last: int) -> list[Option]:
    size = b.weights + (0 if work.shared_tower else b.tower)
    kept = Tensors("reference weights", StateClass.PERMANENT, size, 0, last)
    streamed = Tensors("reference weights", StateClass.PHASE_LOCAL, size, at.reference, at.reference_end)
    return [Option("keep", (kept,)), Option("host", (streamed,), size / hardware.host_rate_here)]


def _graphs(
    work: Workload, cost: Cost, hardware: Hardware, b: Bytes, at: _Phases, run_ahead: Mapping[int, float]
) -> list[Option]:
    """What becomes of saved activations, for each number of groups that may hold their prefix graph."""
    options = []
    # a copy lane works beside the compute lane; what it cannot hide is what takes it longer than the pass
    transfer = 2 * b.activations_of_group / hardware.host_rate_here
    exposed = work.groups * max(0.0, transfer - cost.prefix() - cost.prefix_backward())
    buffers = 2 * b.layer_of_group
    for ahead, slower in run_ahead.items():
        for name, prefix, tower, suffix, seconds in (
            ("keep", ahead * b.activations_of_group, ahead * b.tower_activations, b.suffix, 0.0),
            ("offload", buffers, ahead * b.tower_activations, b.suffix, exposed),
            (
                "recompute",
                ahead * b.inputs_of_group + b.layer_of_group,
                ahead * b.tower_inputs,
                b.suffix_inputs,
                cost.second_forwards(),
            ),
        ):
            sizes = {
                "actor boundary KV": (StateClass.BOUNDARY, ahead * b.boundary_of_group),
                "prefix activations": (StateClass.PHASE_LOCAL, prefix),
                "tower activations": (StateClass.PHASE_LOCAL, tower),
            }
            held = [Tensors(what, *size, at.actor_prefix, at.suffixes) for what, size in sizes.items()]
            held.append(Tensors("suffix activations", StateClass.PHASE_LOCAL, suffix, at.actor, at.suffixes))
            options.append(Option(f"{name}, runAhead {ahead}", tuple(held), seconds + slower))
    return options
