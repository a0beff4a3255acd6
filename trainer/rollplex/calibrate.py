"""``rollplex calibrate``: measure this machine's figures for ``rollplex plan --hardware``.

Rates are the best of several rounds: a plan asks what the hardware can do, and what disturbs one round is not that.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rollplex.telemetry.machine import card

# Sequences of a decode batch that are measured.
BATCHES = (1, 8, 32, 64, 128, 256)
_ROUNDS = 5


class Device:
    """Where work runs and how its end is awaited: a GPU with a stream for each lane, or CPU threads."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.cuda = name.startswith("cuda")
        self.dtype = torch.bfloat16 if self.cuda else torch.float32
        # large enough to be out of caches, small enough for a laptop's second
        self.side = 8192 if self.cuda else 1024
        self.copy_bytes = (1 << 30) if self.cuda else (64 << 20)

    def tensor(self, *shape: int) -> torch.Tensor:
        # random: a power-limited chip multiplies ones faster than it does data
        return torch.randn(*shape, dtype=self.dtype, device=self.name)

    def wait(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def seconds(self, work: Callable[[], Any], times: int = 3) -> float:
        """Of one call, the best of several rounds."""
        work()
        self.wait()
        best = float("inf")
        for _ in range(_ROUNDS):
            start = time.perf_counter()
            for _ in range(times):
                work()
            self.wait()
            best = min(best, (time.perf_counter() - start) / times)
        return best


@torch.no_grad()
def measure(device: Device, say: Callable[[str], None]) -> dict[str, Any]:
    """Figures for a plan under ``hardware``, and what they were read off under ``measured``."""
    say("matrix products")
    flops = _gemm(device)
    say("memory")
    memory = _memory(device)
    say("decode by batch")
    decode = _decode(device)
    say("copies to and from the host")
    copies = _host_copies(device)
    say("both lanes at once")
    both = _both_lanes(device)
    hardware = {
        "flops": flops,
        "pass_efficiency": 1.0,  # of a rate that was reached, not of a data sheet's
        "hbm_rate": memory,
        "decode_efficiency": min(1.0, decode[BATCHES[2]] / memory),
        "host_rate": copies["near"]["each_way_at_once"],
        "decode_share": min(1.0, max(0.01, 2 / both - 1)),
        "hbm_bytes": _memory_bytes(device),
    }
    if "far" in copies:
        hardware["far_factor"] = copies["far"]["each_way_at_once"] / copies["near"]["each_way_at_once"]
    return {
        "hardware": hardware,
        "measured": {
            "decode_bytes_per_second_by_batch": decode,
            "host_bytes_per_second": copies,
            "both_lanes_over_one_after_the_other": both,
        },
        "card": card(),
        "date": date.today().isoformat(),
    }


def _gemm(device: Device) -> float:
    a, b = device.tensor(device.side, device.side), device.tensor(device.side, device.side)
    out = torch.empty_like(a)
    return 2 * device.side**3 / device.seconds(lambda: torch.matmul(a, b, out=out))


def _memory(device: Device) -> float:
    """Bytes read and written by a copy, a second."""
    source = torch.empty(device.copy_bytes, dtype=torch.uint8, device=device.name)
    target = torch.empty_like(source)
    return 2 * device.copy_bytes / device.seconds(lambda: target.copy_(source))


def _decode(device: Device) -> dict[int, float]:
    """Bytes of weights a second that decode reads: a layer's products with few rows, by how many."""
    weights = [device.tensor(device.side, device.side) for _ in range(4)]
    size = sum(weight.nbytes for weight in weights)

    def read(rows: torch.Tensor) -> None:
        for weight in weights:
            torch.nn.functional.linear(rows, weight)

    return {batch: size / device.seconds(partial(read, device.tensor(batch, device.side))) for batch in BATCHES}


def _host_copies(device: Device) -> dict[str, dict[str, float]]:
    """Bytes a second to and from pinned memory of the near NUMA node, and of a far one where there is one."""
    found = {}
    for name, cpus in _numa_cpus(device).items():
        with _on(cpus):
            found[name] = _copies(device)
    return found


def _copies(device: Device) -> dict[str, float]:
    size = device.copy_bytes
    host = [torch.ones(size, dtype=torch.uint8, pin_memory=device.cuda) for _ in range(2)]  # touched here, so near
    there = [torch.ones(size, dtype=torch.uint8, device=device.name) for _ in range(2)]
    out = device.seconds(lambda: host[0].copy_(there[0], non_blocking=True))
    back = device.seconds(lambda: there[1].copy_(host[1], non_blocking=True))
    lanes = _Lanes(device)
    both = device.seconds(
        lambda: lanes.run(
            lambda: host[0].copy_(there[0], non_blocking=True), lambda: there[1].copy_(host[1], non_blocking=True)
        )
    )
    return {"to_host": size / out, "to_device": size / back, "each_way_at_once": size / both}


def _both_lanes(device: Device) -> float:
    """How much faster a prefix-like and a decode-like lane are at once than one after the other."""
    a, b = device.tensor(device.side, device.side), device.tensor(device.side, device.side)
    out = torch.empty_like(a)
    weights, rows = [device.tensor(device.side, device.side) for _ in range(4)], device.tensor(32, device.side)

    def compute() -> None:
        torch.matmul(a, b, out=out)

    def decode(times: int = 1) -> None:
        for weight in weights * times:
            torch.nn.functional.linear(rows, weight)

    one, other = device.seconds(compute), device.seconds(decode)
    repeats = max(1, round(one / other))  # so that both lanes take as long
    lanes = _Lanes(device)
    at_once = device.seconds(lambda: lanes.run(compute, lambda: decode(repeats)))
    return (one + repeats * other) / at_once


class _Lanes:
    """Runs two pieces of work at once: on two streams, or on two threads."""

    def __init__(self, device: Device) -> None:
        self._streams = [torch.cuda.Stream() for _ in range(2)] if device.cuda else []

    def run(self, first: Callable[[], Any], second: Callable[[], Any]) -> None:
        if self._streams:
            for stream, work in zip(self._streams, (first, second), strict=True):
                with torch.cuda.stream(stream):
                    work()
            return
        thread = threading.Thread(target=_without_grad, args=(second,))
        thread.start()
        first()
        thread.join()


def _without_grad(work: Callable[[], Any]) -> None:
    with torch.no_grad():  # grad mode is a thread's own
        work()


def _numa_cpus(device: Device) -> dict[str, set[int]]:
    """CPUs of the NUMA node near the device and of another one, of those that this process may use."""
    allowed = os.sched_getaffinity(0)
    nodes = {
        int(folder.name.removeprefix("node")): _cpu_list((folder / "cpulist").read_text()) & allowed
        for folder in sorted(Path("/sys/devices/system/node").glob("node[0-9]*"))
    }
    nodes = {node: cpus for node, cpus in nodes.items() if cpus}
    if not nodes:
        return {"near": allowed}
    near = _node_of(device)
    near = near if near in nodes else min(nodes)
    far = next((cpus for node, cpus in nodes.items() if node != near), None)
    return {"near": nodes[near]} | ({"far": far} if far else {})


def _node_of(device: Device) -> int:
    if not device.cuda:
        return -1
    found: Any = torch.cuda.get_device_properties(torch.device(device.name))
    bus = f"{found.pci_domain_id:04x}:{found.pci_bus_id:02x}:{found.pci_device_id:02x}.0"
    path = Path(f"/sys/bus/pci/devices/{bus}/numa_node")
    return int(path.read_text()) if path.exists() else -1


def _cpu_list(text: str) -> set[int]:
    """``0-3,8`` as numbers."""
    cpus: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cpus |= set(range(int(first), int(last or first) + 1))
    return cpus


@contextmanager
def _on(cpus: Iterable[int]) -> Any:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _memory_bytes(device: Device) -> int:
    if device.cuda:
        return torch.cuda.mem_get_info()[1]
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def calibrate(out: Path, say: Callable[[str], None]) -> None:
    """Measure and write the figures; overwrites the file."""
    device = Device("cuda" if torch.cuda.is_available() else "cpu")
    out.write_text(json.dumps(measure(device, say), indent=2) + "\n")
    say(f"wrote {out}: rollplex plan JOB --hardware {out}")
