"""What a rank's device and its links can do: profiles by name, and figures that ``rollplex calibrate`` measured.

Every figure of a profile is in :data:`SOURCES` with where it comes from.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from rollplex.api.errors import JobError

GiB = 1 << 30


@dataclass(frozen=True, slots=True)
class Hardware:
    """One rank's figures; rates are bytes per second and one way, where nothing else is said."""

    name: str
    hbm_bytes: int  # as the driver shows it
    flops: float  # dense, in the precision of training
    hbm_rate: float
    peer_rate: float  # to another GPU of the node
    host_rate: float  # pinned host memory of the near NUMA node, each way while both are busy
    network_rate: float  # to another node
    far_factor: float = 0.6  # host_rate of the far NUMA node over the near one's
    numa_near: bool = True  # whether ranks are pinned near their GPUs
    pass_efficiency: float = 0.57  # share of flops that whole passes reach
    decode_efficiency: float = 0.51  # share of hbm_rate that decode reaches
    engine_step_seconds: float = 0.002  # what an engine step takes beside its bytes: host, launches, sampling
    collective_seconds: float = 15e-6  # latency of one small all-reduce in a node
    decode_share: float = 0.85  # share of a decode step in which it competes with other work for the chip

    @property
    def host_rate_here(self) -> float:
        """Of the NUMA node that a rank's memory is on."""
        return self.host_rate if self.numa_near else self.host_rate * self.far_factor


PROFILES: dict[str, Hardware] = {
    hardware.name: hardware
    for hardware in (
        Hardware("h800", 81559 << 20, 989e12, 3.35e12, 200e9, 45e9, 50e9),
        Hardware("h100", 81559 << 20, 989e12, 3.35e12, 450e9, 45e9, 50e9),
        Hardware("h200", 143771 << 20, 989e12, 4.8e12, 373e9, 45e9, 50e9),
        Hardware("b200", 183359 << 20, 2250e12, 8.0e12, 900e9, 45e9, 50e9),
    )
}

SOURCES: dict[str, str] = {
    "hbm_bytes": "nvidia-smi of the 80 GB, 141 GB and 192 GB cards",
    "flops": "data sheets, dense bf16 (H800 as H100)",
    "hbm_rate": "data sheets",
    "peer_rate": "half of the data sheets' two-way NVLink figure (H800 400, H100 900, B200 1800 GB/s); H200 measured",
    "host_rate": "measured on an H200 with both directions busy; taken for all (PCIe 5 x16)",
    "network_rate": "one 400 Gb/s port a GPU",
    "far_factor": "assumed; measure it with rollplex calibrate",
    "pass_efficiency": "measured on an H200: a whole shared-prefix update of a 7B shape, useful operations over 989e12",
    "decode_efficiency": "measured on an H200: vLLM, 7B shape, 32 sequences in 6.2 ms",
    "engine_step_seconds": "the same run, by its growth with the batch",
    "collective_seconds": "measured on two H200: 48 us for 64 x 3584 bf16, of which two thirds are transfer and launch",
    "decode_share": "measured on an H200 with an SM partition: both lanes at once against one after the other, 1.08",
}


def of_cpu() -> Hardware:
    """This machine as one rank: its memory, and rates of a common server core until they are measured."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Hardware(
        "cpu", memory, 5e10, 1e10, 5e9, 5e9, 1e9, engine_step_seconds=0.005, collective_seconds=1e-3, decode_share=1.0
    )


def hardware_of(profile: str, gpu: str | None = None, measured: Path | None = None) -> Hardware:
    """The profile's figures; ``gpu`` names another one or gives its memory in GB; ``measured`` overrides figures.

    Raises:
        JobError: a GPU or a file of figures that nobody knows, with the way out.
    """
    name = (gpu or profile).lower()
    if name == "cpu":
        found = of_cpu()
    elif name in PROFILES:
        found = PROFILES[name]
    elif gpu is not None and _is_number(gpu) and float(gpu) > 0:
        base = PROFILES.get(profile, PROFILES["h100"])
        found = replace(base, name=f"{base.name} with {gpu} GB", hbm_bytes=int(float(gpu) * GiB))
    elif gpu is not None:
        raise JobError.at("--gpu", f"{gpu!r} is not known; choose from {', '.join(PROFILES)}, cpu, or its memory in GB")
    else:
        raise JobError.at(
            "spec.hardware.profile",
            f"{profile} says nothing about its GPU; name one ({', '.join(PROFILES)}) here or with --gpu, or give its "
            "memory in GB with --gpu",
        )
    return found if measured is None else _measured(found, measured)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _measured(base: Hardware, path: Path) -> Hardware:
    known = {field.name for field in fields(Hardware)} - {"name", "numa_near"}
    try:
        figures: Any = json.loads(path.read_text())["hardware"]
    except OSError as error:
        raise JobError.at("--hardware", f"{path}: {error.strerror}; write it with rollplex calibrate") from None
    except (ValueError, KeyError, TypeError):
        raise JobError.at("--hardware", f'{path} has no "hardware" figures; write it with rollplex calibrate') from None
    if not isinstance(figures, Mapping) or (unknown := sorted(set(figures) - known)):
        what = ", ".join(unknown) if isinstance(figures, Mapping) else "no object"
        raise JobError.at("--hardware", f"{path}: {what} is no figure; known: {', '.join(sorted(known))}")
    for name, value in figures.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise JobError.at("--hardware", f"{path}: {name} is {value!r}; it must be a number above 0")
    return replace(base, name=f"{base.name}, measured", **figures)
