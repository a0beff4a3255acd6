"""The demo, run and written down: `make demo-seeds` runs `make demo` with seeds 1, 2 and 3 and rewrites what is said
about it: docs/performance/demo.json, the table and the pictures of docs/demo.md, and the output in the README.

`python docs/demo_runs.py --write` only rewrites the pages from that JSON.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from rollplex.telemetry.machine import card, versions

DOCS = Path(__file__).parent
ROOT = DOCS.parent
FILE = DOCS / "performance" / "demo.json"
DEMO = ROOT / "build" / "demo"
RUN = ROOT / "runs" / "demo"
SEEDS = (1, 2, 3)
GUESSING = 0.25


def run_demo(seed: int) -> dict[str, Any]:
    """One `make demo`: what it printed, how long it took, and what its metrics say."""
    shutil.rmtree(DEMO, ignore_errors=True)
    start = time.time()
    done = subprocess.run(
        ["make", "demo", f"SEED={seed}"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=1200
    )
    end = time.time()
    rows = [json.loads(line) for line in (RUN / "metrics.jsonl").read_text().splitlines()]
    rewards = [row["reward/mean"] for row in rows]
    return {
        "seed": seed,
        "seconds": end - start,
        "training_seconds": end - (DEMO / f"made-with-seed-{seed}").stat().st_mtime,  # made just before it started
        "steps": len(rows),
        "first_five": mean(rewards[:5]),
        "last_five": mean(rewards[-5:]),
        "held_out": rows[-1]["eval/reward/mean"],
        "blanked": rows[-1]["eval/blank/reward/mean"],
        "parity_max": max(row.get("parity/max", 0.0) for row in rows),
        "rewards": [round(reward, 4) for reward in rewards],
        "output": abridged(done.stdout.splitlines(), len(rows)),
    }


def table(report: dict[str, Any]) -> str:
    lines = [
        f"{report['card']}, {report['date']}. Guessing earns {GUESSING}.",
        "",
        "| seed | first five steps | last five | held out | frames blanked | parity, at most | training | all |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {run['seed']} | {run['first_five']:.3f} | {run['last_five']:.3f} | {run['held_out']:.3f} | "
        f"{run['blanked']:.3f} | {run['parity_max']:.1e} | {run['training_seconds']:.0f} s | {run['seconds']:.0f} s |"
        for run in report["runs"]
    ]
    return "\n".join(lines)


def abridged(output: list[str], steps: int) -> list[str]:
    """The lines of the training that are worth a look: its start, a few steps, and the end."""
    start = next(number for number, line in enumerate(output) if line.startswith("reading the data:"))
    kept: list[str] = []
    for line in output[start:]:
        step = int(line.split()[1].partition("/")[0]) if line.startswith("step ") else None
        if line.startswith("make"):  # on its way out of the folder
            continue
        if step is None or step in (1, 2, steps) or step % 50 == 0:
            kept.append(line.rstrip())
        elif kept[-1] != "...":
            kept.append("...")
    return kept


def draw_rewards(report: dict[str, Any], path: Path) -> None:
    """Mean reward of every step, one line a seed, and what guessing earns."""
    matplotlib.rcParams["svg.hashsalt"] = "rollplex"
    figure = Figure(figsize=(8, 3), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for run, colour in zip(report["runs"], ("#3f8fd2", "#4fa866", "#e8855b"), strict=True):
        axes.plot(range(1, run["steps"] + 1), run["rewards"], color=colour, linewidth=1.2, label=f"seed {run['seed']}")
    axes.axhline(GUESSING, color="#8d99ae", linestyle="--", linewidth=1, label="guessing")
    axes.set(xlabel="step", ylabel="mean reward", ylim=(0, 1.03))
    axes.legend(frameon=False, loc="lower right")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path, metadata={"Date": None})


def put(page: Path, mark: str, text: str) -> None:
    """Replace what stands between two marks of a page."""
    begin, end = f"<!-- {mark} -->\n", f"<!-- /{mark} -->"
    before, _, rest = page.read_text().partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        sys.exit(f"{page} lacks the marks {begin.strip()} and {end.strip()}")
    page.write_text(before + begin + text + "\n" + end + after)


def write_pages(report: dict[str, Any]) -> None:
    put(DOCS / "demo.md", "seeds", table(report))
    put(ROOT / "README.md", "demo", "\n".join(["```text", *report["runs"][0]["output"], "```"]))
    draw_rewards(report, DOCS / "demo-reward.svg")


def main(*arguments: str) -> None:
    if arguments == ("--write",):
        write_pages(json.loads(FILE.read_text()))
        return
    runs = []
    for seed in SEEDS:
        runs.append(run_demo(seed))
        if seed == SEEDS[0]:
            shutil.copy(RUN / "lanes.png", DOCS / "demo-lanes.png")
    report = {"card": card(), "date": date.today().isoformat(), "versions": versions(), "runs": runs}
    FILE.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(report, indent=1)
    FILE.write_text(re.sub(r"\[[\d.,\s]+\]", lambda found: " ".join(found[0].split()), text) + "\n")
    write_pages(report)


if __name__ == "__main__":
    main(*sys.argv[1:])
