"""Saved rollouts: written one JSON line a sample, fed back in place of an engine.

A replayed step sees the tokens, log probabilities and stops of the saved one, so two runs can be compared token by
token, on any machine and without an engine. A batch that is not the saved one is refused, never approximated.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from rollplex.batch import Prompt, Response
from rollplex.rollout.protocol import RetiredError, Sampling


class ReplayError(RuntimeError):
    """The saved rollouts do not belong to the batch that is to be replayed."""


@dataclass(frozen=True)
class Judged:
    """What a step made of a response: its reward (None: the job has none), the parts of it by name, its advantage."""

    reward: float | None
    parts: Mapping[str, float] = field(default_factory=dict)
    advantage: float | None = None


@dataclass(frozen=True)
class SavedSample:
    """One line of a rollouts file. ``prompt_key`` is the prompt's content: ids, pixels, grid and timing.

    ``reward``, ``parts`` and ``advantage`` are for readers; a replay scores again.
    """

    step: int
    prompt_id: str
    prompt_key: str
    sample: int
    prompt_token_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: str
    stop: int | str | None
    text: str
    reward: float | None = None
    parts: Mapping[str, float] | None = None
    advantage: float | None = None


def save_rollouts(
    folder: str | Path,
    step: int,
    prompts: Sequence[Prompt],
    responses: Iterable[Response],
    judged: Mapping[tuple[int, int], Judged] | None = None,
) -> Path:
    """Write the samples of a step to ``folder/step-<step>.jsonl``, in order of prompt and sample; returns the file.

    The file appears whole or not at all, and a step that is run again after a resume replaces its own.
    ``judged`` is keyed by (prompt index, sample). Floats are written so that reading gives the same bits.
    """
    lines = []
    for response in sorted(responses, key=lambda r: (r.prompt, r.sample)):
        prompt = prompts[response.prompt]
        found = judged.get((response.prompt, response.sample)) if judged else None
        saved = SavedSample(
            step=step,
            prompt_id=prompt.id,
            prompt_key=prompt.key,
            sample=response.sample,
            prompt_token_ids=prompt.token_ids,
            token_ids=response.token_ids,
            logprobs=response.logprobs,
            finish=response.finish,
            stop=response.stop,
            text=response.text,
            reward=found.reward if found else None,
            parts=found.parts if found else None,
            advantage=found.advantage if found else None,
        )
        lines.append(json.dumps(asdict(saved)) + "\n")
    path = Path(folder) / f"step-{step:06d}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text("".join(lines))
    partial.replace(path)
    return path


def read_rollouts(path: str | Path) -> list[SavedSample]:
    """All samples of a file, or of every ``*.jsonl`` of a folder in order of name.

    Raises:
        ReplayError: nothing there, or a line that is not a saved sample.
    """
    path = Path(path)
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not files or not all(file.is_file() for file in files):
        raise ReplayError(f"rollout.replay: {path} is neither a rollouts file nor a folder with *.jsonl")
    samples = []
    for file in files:
        for number, line in enumerate(file.read_text().splitlines(), start=1):
            try:
                fields: dict[str, Any] = json.loads(line)
                for name in ("prompt_token_ids", "token_ids", "logprobs"):
                    fields[name] = tuple(fields[name])
                samples.append(SavedSample(**fields))
            except (ValueError, TypeError, KeyError) as error:
                raise ReplayError(f"rollout.replay: {file}:{number} is not a saved sample: {error}") from error
    return samples


class ReplayEngine:
    """Feeds saved rollouts back through the interface of :class:`rollplex.rollout.engine.RolloutEngine`.

    A sample finishes in the step in which its last token would have come if all were decoded together, one token a
    step, so that short responses come early as they did when sampled. ``version`` counts publishes.
    """

    def __init__(self, samples: Iterable[SavedSample]) -> None:
        self._saved: dict[int, dict[tuple[str, int], list[SavedSample]]] = defaultdict(lambda: defaultdict(list))
        for sample in samples:
            self._saved[sample.step][sample.prompt_id, sample.sample].append(sample)
        if not self._saved:
            raise ReplayError("rollout.replay: there are no saved samples")
        self._waiting: list[Response] = []
        self._age = 0  # tokens that every waiting response has
        self._published = False
        self.version = 0
        self.decode_batch = 0
        self.decode_tokens = 0
        self.prefill_tokens = 0

    @property
    def unfinished(self) -> int:
        """Samples that have been submitted and not returned."""
        return len(self._waiting)

    @property
    def stalled(self) -> int:
        """Always 0: what is saved is there."""
        return 0

    def submit(self, step: int, prompts: Sequence[Prompt], group_size: int, sampling: Sampling) -> None:
        """Look the batch up; ``sampling`` was applied when the samples were saved.

        Raises:
            ReplayError: the step is not saved, or a prompt or sample of it is not, or has other content.
        """
        self._refuse_retired("submit")
        if self._waiting:
            raise RuntimeError(f"cannot submit step {step}: {len(self._waiting)} saved samples are still waiting")
        if step not in self._saved:
            steps = sorted(self._saved)
            raise ReplayError(f"rollout.replay: step {step} is not saved; there are {_ranges(steps)}")
        taken: dict[tuple[str, int], int] = defaultdict(int)
        self._waiting = [
            self._response(step, index, prompt, sample, taken)
            for index, prompt in enumerate(prompts)
            for sample in range(group_size)
        ]
        saved = sum(len(several) for several in self._saved[step].values())
        if saved != len(self._waiting):
            self._waiting = []
            raise ReplayError(
                f"rollout.replay: step {step} has {saved} saved samples, the batch {len(prompts) * group_size} "
                f"({len(prompts)} prompts x {group_size}); use the same data, promptsPerStep and groupSize"
            )
        self._age = 0

    def step(self) -> list[Response]:
        """One token for every waiting sample; those that are complete."""
        self._refuse_retired("step")
        self._age += 1
        self.decode_batch = self.decode_tokens = sum(len(r.token_ids) >= self._age for r in self._waiting)
        done = [response for response in self._waiting if len(response.token_ids) <= self._age]
        self._waiting = [response for response in self._waiting if len(response.token_ids) > self._age]
        return done

    def abort_all(self) -> None:
        """Forget what is waiting."""
        self._waiting = []

    def retire(self) -> None:
        """As the engine: nothing may be submitted until :meth:`publish`."""
        self._refuse_waiting("retire")
        self._published = False

    def publish(self) -> int:
        """As the engine; the saved samples do not change."""
        self._refuse_waiting("publish")
        self.version += 1
        self._published = True
        return self.version

    def positions(self, prompt: Prompt) -> torch.Tensor | None:
        """None: no engine has position ids here."""
        return None

    def close(self) -> None:
        """Forget everything."""
        self._waiting = []
        self._saved.clear()
        self._published = False

    def _response(
        self, step: int, index: int, prompt: Prompt, sample: int, taken: dict[tuple[str, int], int]
    ) -> Response:
        where = f"rollout.replay: step {step}, prompt {prompt.id!r}, sample {sample}"
        several = self._saved[step].get((prompt.id, sample))
        if several is None:
            known = sorted({prompt_id for prompt_id, _ in self._saved[step]})
            raise ReplayError(f"{where} is not saved; that step has prompts {', '.join(known[:5])} (of {len(known)})")
        # a batch may hold a prompt twice: its samples were saved in the order of the batch
        nth = taken[prompt.id, sample]
        taken[prompt.id, sample] += 1
        if nth >= len(several):
            raise ReplayError(f"{where} is saved {len(several)} times, the batch wants it more often")
        saved = several[nth]
        if saved.prompt_token_ids != prompt.token_ids:
            raise ReplayError(f"{where}: {_first_difference(saved.prompt_token_ids, prompt.token_ids)}")
        if saved.prompt_key != prompt.key:
            raise ReplayError(f"{where}: the ids agree, the media do not (pixels, grid or timing)")
        finish: Any = saved.finish
        return Response(index, sample, saved.token_ids, saved.logprobs, finish, saved.stop, saved.text)

    def _refuse_retired(self, what: str) -> None:
        if not self._published:
            raise RetiredError(
                f"cannot {what}: weight version {self.version + 1} is not published; call publish() first"
            )

    def _refuse_waiting(self, what: str) -> None:
        if self._waiting:
            raise RuntimeError(f"cannot {what}: {len(self._waiting)} samples are unfinished")


def _first_difference(saved: Sequence[int], present: Sequence[int]) -> str:
    if len(saved) != len(present):
        return f"saved with {len(saved)} prompt tokens, now it has {len(present)}"
    at = next(i for i, (old, new) in enumerate(zip(saved, present, strict=True)) if old != new)
    return f"prompt token {at} was {saved[at]}, now it is {present[at]}"


def _ranges(steps: Sequence[int]) -> str:
    return f"{len(steps)} steps from {steps[0]} to {steps[-1]}"
