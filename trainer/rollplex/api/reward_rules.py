"""Rules about rewards and held-out scores; they stand in the table of :mod:`rollplex.api.rules`."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError

from rollplex.api.errors import Fault
from rollplex.api.job import JobSpec
from rollplex.api.reward import OPTIONS, LengthOptions, Options, RewardSpec
from rollplex.api.wording import errors_of, fault_of


def reward_is_given(spec: JobSpec, _: int) -> Iterator[Fault]:
    """Every algorithm but `opd`, which learns from its teacher, needs a `reward`."""
    if not spec.reward and spec.algorithm.name != "opd":
        yield Fault(
            "spec.reward",
            f"is missing, and {spec.algorithm.name} learns from it; for example reward: [{{name: exact}}]",
        )


def evaluation_has_a_reward(spec: JobSpec, _: int) -> Iterator[Fault]:
    """An `evaluation` needs a `reward` to score with, with `opd` too."""
    if not spec.reward and spec.algorithm.name == "opd" and spec.evaluation is not None:
        yield Fault(
            "spec.evaluation", "there is no reward to score with; give one, such as [{name: exact}], or leave it out"
        )


def reward_is_named_or_python(spec: JobSpec, _: int) -> Iterator[Fault]:
    """Each reward has either `name` or `python`; `options` go with a named one that has some."""
    for index, reward in enumerate(spec.reward):
        path = f"spec.reward.{index}"
        if (reward.name is None) == (reward.python is None):
            count = "neither" if reward.name is None else "both"
            yield Fault(path, f"has {count} of name and python; give one: name: exact, or python: FILE.py:FUNCTION")
        elif reward.options and (reward.python is not None or reward.name == "exact"):
            which = "exact has none" if reward.name else "a function of yours holds its own"
            yield Fault(f"{path}.options", f"would not be read, since {which}; leave them out")


def reward_options_are_its_own(spec: JobSpec, _: int) -> Iterator[Fault]:
    """The `options` of a named reward are those listed for it."""
    for index, reward in enumerate(spec.reward):
        if reward.python is None and reward.name not in (None, "exact"):
            parsed = _parsed(reward, f"spec.reward.{index}.options")
            if isinstance(parsed, list):
                yield from parsed


def length_penalty_can_act(spec: JobSpec, _: int) -> Iterator[Fault]:
    """A reward `length` begins to fall below `rollout.maxTokens`."""
    for index, reward in enumerate(spec.reward):
        parsed = _parsed(reward, "") if reward.name == "length" else None
        if isinstance(parsed, LengthOptions):
            free, longest = parsed.max_tokens - parsed.buffer_tokens, spec.rollout.max_tokens
            if free >= longest:
                yield Fault(
                    f"spec.reward.{index}.options",
                    f"only responses longer than maxTokens - bufferTokens = {free} tokens are punished, and "
                    f"rollout.maxTokens {longest} ends every one before; lower maxTokens",
                )


def replay_is_not_evaluated(spec: JobSpec, _: int) -> Iterator[Fault]:
    """`rollout.replay` goes without `evaluation`, for which no responses are saved."""
    if spec.rollout.replay is not None and spec.evaluation is not None:
        yield Fault("spec.evaluation", "with rollout.replay nothing is sampled, so nothing can be scored; leave it out")


def _parsed(reward: RewardSpec, path: str) -> Options | list[Fault]:
    """The options, or what is wrong with them, below ``path``."""
    try:
        return reward.parsed_options()
    except ValidationError as error:
        found = [fault_of(detail, OPTIONS[str(reward.name)]) for detail in errors_of(error)]
        return [Fault(f"{path}.{fault.path}" if fault.path else path, fault.message) for fault in found]
