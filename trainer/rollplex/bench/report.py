"""What a benchmark leaves: medians, spreads and ratios, as JSON and as a table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import permutations
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from rollplex.telemetry.machine import card, versions

BASELINE = "per-sample"


@dataclass
class Rounds:
    """All rounds of one mode; seconds of a step each. ``saved`` is None where the yardstick lacked something."""

    seconds: list[float] = field(default_factory=list)
    hidden: list[float] = field(default_factory=list)
    exposed: list[float] = field(default_factory=list)
    saved: list[float | None] = field(default_factory=list)
    tokens: dict[str, int] = field(default_factory=dict)

    def summary(self) -> dict[str, Any]:
        saved = [value for value in self.saved if value is not None]
        return {
            "seconds": median(self.seconds),
            "spread": [min(self.seconds), max(self.seconds)],
            "tokens": self.tokens,
            "hidden_seconds": median(self.hidden),
            "saved_seconds": median(saved) if saved else None,
            "exposed_seconds": median(self.exposed),
        }


def ratios(modes: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """``a/b`` for every ordered pair: median seconds of a over median seconds of b."""
    return {f"{a}/{b}": modes[a]["seconds"] / modes[b]["seconds"] for a, b in permutations(modes, 2)}


def build_report(live: Mapping[str, Rounds], replayed: Mapping[str, Rounds], work: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON document. ``work`` says what was run (job, batch, prompt share, response lengths, weights)."""
    modes = {name: rounds.summary() for name, rounds in live.items()}
    compute = {name: rounds.summary() for name, rounds in replayed.items()}
    return {
        "card": card(),
        "date": date.today().isoformat(),
        "versions": versions(),
        "work": dict(work),
        "modes": modes,
        "ratios": ratios(modes),
        "replay": {"modes": compute, "ratios": ratios(compute)},
    }


def write_report(report: Mapping[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n")


HEADER = ("mode", "seconds", "spread", "hidden", "saved", "exposed", "prefix", "suffix", "vision", "decode", "speed-up")


def rows(report: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The table's cells; tokens are those that went through a model, the speed-up is against ``per-sample``."""
    found = []
    for name, mode in report["modes"].items():
        saved, tokens = mode["saved_seconds"], mode["tokens"]
        found.append(
            (
                name,
                f"{mode['seconds']:.2f}",
                "{:.2f}-{:.2f}".format(*mode["spread"]),
                f"{mode['hidden_seconds']:.2f}",
                "-" if saved is None else f"{saved:.2f}",
                f"{mode['exposed_seconds']:.2f}",
                *(f"{tokens[kind]:,}" for kind in ("prefix", "suffix", "vision", "decode")),
                f"{report['modes'][BASELINE]['seconds'] / mode['seconds']:.2f}x",
            )
        )
    return found


def as_table(report: Mapping[str, Any]) -> Table:
    table = Table(title=f"{report['work']['job']} on {report['card']}, {report['date']}")
    for name in HEADER:
        table.add_column(name, justify="left" if name == "mode" else "right")
    for row in rows(report):
        table.add_row(*row)
    return table


def as_markdown(report: Mapping[str, Any]) -> str:
    lines: list[Sequence[str]] = [HEADER, ("---",) + ("---:",) * (len(HEADER) - 1), *rows(report)]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)
