"""Tensors as sharded safetensors, written one tensor after the other: never a second copy of a shard in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch

from rollplex.files import FileRecord, write_file

_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
}
SHARD_BYTES = 4 << 30


@dataclass(frozen=True)
class Entry:
    """A tensor to write: what it will be, and how to get it when its turn comes."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    read: Callable[[], torch.Tensor]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Entry:
        """A tensor that is there already."""
        return cls(tuple(tensor.shape), tensor.dtype, lambda: tensor)

    @property
    def bytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


def plan_shards(entries: Mapping[str, Entry], limit: int) -> list[list[str]]:
    """Names shard by shard, in the given order; a shard holds at most ``limit`` bytes, or one larger tensor."""
    shards: list[list[str]] = []
    room = 0
    for name, entry in entries.items():
        if not shards or entry.bytes > room:
            shards.append([])
            room = limit
        shards[-1].append(name)
        room -= entry.bytes
    return shards


def write_shard(path: Path, entries: Mapping[str, Entry]) -> FileRecord:
    """Write one safetensors file (https://huggingface.co/docs/safetensors) and wait until it is on the disk."""
    return write_file(path, _parts(entries))


def shard_name(stem: str, number: int, count: int) -> str:
    """``model-00002-of-00003.safetensors``; number from 1."""
    return f"{stem}-{number:05d}-of-{count:05d}.safetensors"


def _parts(entries: Mapping[str, Entry]) -> Iterator[bytes | memoryview]:
    # widest elements first, as the safetensors library does it: then every tensor is aligned
    names = sorted(entries, key=lambda name: (-entries[name].dtype.itemsize, name))
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name in names:
        entry = entries[name]
        header[name] = {
            "dtype": _NAMES[entry.dtype],
            "shape": list(entry.shape),
            "data_offsets": [at, at + entry.bytes],
        }
        at += entry.bytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in names:
        entry = entries[name]
        tensor = entry.read()
        assert (tuple(tensor.shape), tensor.dtype) == (entry.shape, entry.dtype), name
        if tensor.numel():
            flat = tensor.detach().to("cpu").contiguous().reshape(-1)
            yield memoryview(flat.view(torch.uint8).numpy().data)
