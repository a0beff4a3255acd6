"""Puts a step's page together."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from rollplex.rollout.replay import SavedSample
from rollplex.show.curve import curve
from rollplex.show.frames import Pictures, Source, read_sources
from rollplex.show.prompt import ChatReader, Turn
from rollplex.show.saved import Run, read_run


@dataclass(frozen=True)
class Answer:
    """One response as the page shows it; ``hue`` is its reward's place among the step's, red to green."""

    sample: SavedSample
    hue: int
    ended: str


@dataclass(frozen=True)
class Group:
    """A prompt with its responses."""

    number: int
    prompt_id: str
    prompt_tokens: int
    turns: Sequence[Turn]
    right: str | None  # the dataset's answer
    media: Sequence[Pictures]
    answers: Sequence[Answer]
    mean: float | None


def show(run: str | Path, step: int | None = None, out: Path | None = None, prompts: int = 64) -> Path:
    """Write the page of a step and return its path.

    Args:
        run: a run folder, or a run's name below ``runs``.
        step: the newest saved one by default.
        out: the file; by default ``show-step-000012.html`` in the run folder.
        prompts: how many of the step's prompts are shown at most.

    Raises:
        JobError: no such run or step.
    """
    found = read_run(run, Path("runs"), step)
    path = out or found.folder / f"show-step-{found.step:06d}.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(found, prompts), encoding="utf-8", errors="replace")
    return path


def page(run: Run, prompts: int) -> str:
    """The page as HTML, with everything that it needs inside."""
    spec = run.job.spec
    every = run.groups
    groups = every[:prompts]
    sources = read_sources(spec, [group[0].prompt_id for group in groups])
    chat: ChatReader | None = None
    notes: list[str] = []
    try:
        chat = ChatReader(spec.model.path)
    except ValueError as error:
        notes.append(f"The prompts' text is not shown: {error}.")
    notes += [sources.fault] if sources.fault else []
    if len(groups) < len(every):
        notes.append(f"The first {len(groups)} of {len(every)} prompts are shown; --prompts shows more.")
    rewards = [sample.reward for sample in run.samples if sample.reward is not None]
    return _template().render(
        run=run,
        spec=spec,
        notes=notes,
        groups=[
            _group(number, group, chat, sources.of_prompt.get(group[0].prompt_id), rewards)
            for number, group in enumerate(groups, start=1)
        ],
        rewards=rewards,
        curve=curve(run.metrics, run.step),
    )


def number(value: float | None) -> str:
    """Three decimals at most, with a minus sign; a dash for what is not known."""
    if value is None:
        return "–"
    text = f"{value:.3f}".rstrip("0").rstrip(".")
    return "0" if text in ("0", "-0") else text.replace("-", "−")


def shown_answer(answer: object) -> str:
    """A text as it is, anything else as JSON has it."""
    return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False, default=str)


def hue(reward: float | None, rewards: Sequence[float]) -> int:
    """Degrees of the colour circle: from red at the lowest of the rewards to green at the highest."""
    if reward is None or not rewards or min(rewards) == max(rewards):
        return 60
    return round(8 + 137 * (reward - min(rewards)) / (max(rewards) - min(rewards)))


def ended(sample: SavedSample, chat: ChatReader | None) -> str:
    """What ended a response, in words."""
    if sample.finish == "length":
        return "maxTokens"
    if isinstance(sample.stop, int):
        return chat.text([sample.stop]) if chat else f"token {sample.stop}"
    return f"{sample.stop!r}"


def _group(
    place: int,
    samples: Sequence[SavedSample],
    chat: ChatReader | None,
    source: Source | None,
    rewards: Sequence[float],
) -> Group:
    ids = samples[0].prompt_token_ids
    known = [sample.reward for sample in samples if sample.reward is not None]
    return Group(
        number=place,
        prompt_id=samples[0].prompt_id,
        prompt_tokens=len(ids),
        turns=chat.turns(ids) if chat else (),
        right=shown_answer(source.answer) if source else None,
        media=source.pictures if source else (),
        answers=[Answer(sample, hue(sample.reward, rewards), ended(sample, chat)) for sample in samples],
        mean=fmean(known) if known else None,
    )


def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("rollplex.show"),
        autoescape=True,  # nobody has read yet what a policy wrote
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = number
    return environment.get_template("page.html")
