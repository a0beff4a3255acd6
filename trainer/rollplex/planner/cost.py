"""Seconds of a work item alone on its lane: operations over rate, bytes over bandwidth (pure).

Operations are 2 a weight and token forward and twice that backward; attention's are 4 x width a pair of query and key
(Q K^T and P V), half of the pairs where it is causal.
"""

from __future__ import annotations

from rollplex.planner.hardware import Hardware
from rollplex.planner.size import size_of
from rollplex.planner.workload import Workload
from rollplex.weights.layout import shares

# Patches of one frame in full attention; others see a window. A frame of 200,704 pixels has 1,024.
_FRAME_PATCHES = 1024
# Bytes of one parameter's update: master and two moments in fp32, read and written.
OPTIMIZER_BYTES = 12


class Cost:
    """What items of a workload cost on given hardware; every method returns seconds."""

    def __init__(
        self, work: Workload, hardware: Hardware, *, optimizer_on_host: bool = False, recompute: bool = False
    ) -> None:
        """``recompute``: passes keep only their layers' inputs, and their backward runs the forward again."""
        self._work, self._hardware = work, hardware
        self._size = size_of(work.shape)
        self._on_host, self._recompute = optimizer_on_host, recompute

    # --- the compute lane

    def encode(self) -> float:
        """One prompt's media through the tower, split over the ranks of the group."""
        return self._passes(self._encode_operations()) if self._work.media_tokens else 0.0

    def encode_backward(self) -> float:
        return 2 * self.encode()

    def prefix(self) -> float:
        """Forward of one prompt."""
        tokens = self._work.prompt_tokens - 1
        return self._passes(self._prefix_operations()) + self._collectives(tokens)

    def prefix_backward(self) -> float:
        """Backward of one prompt, with its second forward if layers are recomputed."""
        tokens = self._work.prompt_tokens - 1
        alone = 2 * self._passes(self._prefix_operations()) + self._collectives(tokens)
        return alone + (self.prefix() if self._recompute else 0.0)

    def suffix(self, lengths: tuple[int, ...], split: bool) -> float:
        """Forward of a unit's responses; ``split`` False: each brings its prompt along."""
        rows = self.suffix_rows(lengths, split)
        return self._passes(self._suffix_operations(lengths, split)) + self._collectives(rows)

    def actor_suffix(self, lengths: tuple[int, ...], split: bool) -> float:
        """Forward and backward, with a second forward if layers are recomputed."""
        rows = self.suffix_rows(lengths, split)
        times = 4 if self._recompute else 3
        return times * self._passes(self._suffix_operations(lengths, split)) + (times - 1) * self._collectives(rows)

    def suffix_rows(self, lengths: tuple[int, ...], split: bool) -> int:
        """Input tokens of a suffix item."""
        return sum(lengths) + (0 if split else len(lengths) * (self._work.prompt_tokens - 1))

    def second_forwards(self) -> float:
        """What a step takes longer if every prefix and suffix of the actor is computed again for its backward."""
        work = self._work
        lengths = tuple(work.response_lengths(work.group_size))
        group = self.suffix(lengths, work.share_prefix) + (self.prefix() if work.share_prefix else 0.0)
        return work.groups * group

    def update(self) -> float:
        """Gradients to their owners, the optimizer over this rank's part, weights back."""
        return self.update_with(self._on_host)

    def update_with(self, optimizer_on_host: bool) -> float:
        """:meth:`update` with the optimizer elsewhere."""
        work, hardware = self._work, self._hardware
        shard = self._size.language / work.train_tensor + self._size.vision
        data = work.train_data
        spans_nodes = work.train_ranks > work.ranks_per_node
        rate = hardware.network_rate if spans_nodes else hardware.peer_rate
        reduced = (4 + work.item_bytes) * shard * (data - 1) / data / rate
        owned = shard / data * OPTIMIZER_BYTES
        if optimizer_on_host:
            return reduced + owned / hardware.host_rate_here
        return reduced + 2 * owned / hardware.hbm_rate

    def publish(self) -> float:
        """Re-lay-out of the copies, and rows that peers hold gathered for the engine."""
        found = shares(self._work.shape, self._work.train_tensor, self._work.rollout_tensor, self._work.item_bytes)
        gathered = found.gathered_bytes / self._hardware.peer_rate
        return 2 * found.copied_bytes / self._hardware.hbm_rate + gathered

    # --- the decode lane

    def engine_step(self, sequences: float, context: float, prefill: float) -> float:
        """One step of one replica: ``sequences`` decode over ``context`` tokens in all, ``prefill`` tokens are read."""
        work, hardware, size = self._work, self._hardware, self._size
        tensor, item = work.rollout_tensor, work.item_bytes
        seconds = hardware.engine_step_seconds
        if sequences:
            read = (size.layer_matrices + size.head) * item / tensor + context * size.kv_values * item / tensor
            seconds += read / (hardware.hbm_rate * hardware.decode_efficiency)
            matrices = 2 * (size.layer_matrices + size.head) * sequences / tensor
            seconds += matrices / (hardware.flops * hardware.pass_efficiency)
            if tensor > 1:
                seconds += 2 * work.shape.layers * hardware.collective_seconds
        if prefill:
            operations = prefill / work.prompt_tokens * (self._prefix_operations() + self._encode_operations())
            seconds += operations / (tensor * hardware.flops * hardware.pass_efficiency)
            seconds += self._collective_seconds(prefill, tensor)
        return seconds

    # --- parts

    def _encode_operations(self) -> float:
        tower, work = self._work.shape.vision, self._work
        patches = work.media_tokens * tower.merge**2
        pairs = patches * min(patches, _FRAME_PATCHES) * len(tower.full_attention_blocks)
        return 2.0 * self._size.vision * patches + 4.0 * tower.hidden * pairs

    def _prefix_operations(self) -> float:
        tokens = self._work.prompt_tokens - 1
        return 2.0 * self._size.layer_matrices * tokens + 2.0 * self._width * tokens**2

    def _suffix_operations(self, lengths: tuple[int, ...], split: bool) -> float:
        prompt = self._work.prompt_tokens - 1
        scored = sum(lengths)
        rows = self.suffix_rows(lengths, split)
        pairs = sum(length * prompt + length**2 / 2 + (0 if split else prompt**2 / 2) for length in lengths)
        return 2.0 * self._size.layer_matrices * rows + 2.0 * self._size.head * scored + 4.0 * self._width * pairs

    @property
    def _width(self) -> int:
        """Heads' values of a token, all layers."""
        return self._work.shape.layers * self._work.shape.heads * self._work.shape.head_dim

    def _passes(self, operations: float) -> float:
        return operations / (self._work.train_tensor * self._hardware.flops * self._hardware.pass_efficiency)

    def _collectives(self, tokens: float) -> float:
        return self._collective_seconds(tokens, self._work.train_tensor)

    def _collective_seconds(self, tokens: float, tensor: int) -> float:
        """Two all-reduces a layer over a group: each moves 2 (t - 1) / t of the tokens' hidden states."""
        if tensor == 1:
            return 0.0
        moved = 2 * (tensor - 1) / tensor * tokens * self._work.shape.hidden * self._work.item_bytes
        one = moved / self._hardware.peer_rate + self._hardware.collective_seconds
        return 2 * self._work.shape.layers * one
