"""Writes the output and the picture of docs/plan.md, and its table of what is known of GPUs: `make docs`."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from rollplex.api.load import load_job
from rollplex.planner.command import Options, plan_command
from rollplex.planner.hardware import PROFILES, SOURCES, Hardware

PAGE = Path(__file__).with_name("plan.md")
JOB = Path(__file__).parents[1] / "examples" / "cluster" / "qwen2.5-vl-32b.yaml"
OUTPUT = ("<!-- output: begin -->\n", "<!-- output: end -->")
FIGURES = ("<!-- figures: begin -->\n", "<!-- figures: end -->")


def output(picture: Path | None) -> str:
    """What the page's command prints."""
    job = load_job(JOB, ["training.microBatchTokens=8192"])
    options = Options(ranks=32, prompt_tokens=2000, response_tokens=200, png_file=picture)
    return f"```\n{plan_command(job, options)}\n```\n"


def figures() -> str:
    """A row for each figure, with its value for every profile and where it comes from."""
    names = [field.name for field in fields(Hardware) if field.name in SOURCES]
    rows = []
    for name in names:
        values = " | ".join(_shown(getattr(hardware, name)) for hardware in PROFILES.values())
        rows.append(f"| `{name}` | {values} | {SOURCES[name]} |")
    return "\n".join([f"| figure | {' | '.join(PROFILES)} | source |", "| --- " * (len(PROFILES) + 2) + "|", *rows, ""])


def _shown(value: float) -> str:
    return f"{value:.4g}" if value < 1000 else f"{value:.3g}"


def written(text: str, picture: Path | None = None) -> str:
    """The page with both parts made anew."""
    for (begin, end), part in ((OUTPUT, output(picture)), (FIGURES, figures())):
        before, _, rest = text.partition(begin)
        text = before + begin + part + end + rest.partition(end)[2]
    return text


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(), PAGE.with_suffix(".png")))
