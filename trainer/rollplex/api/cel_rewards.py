"""CEL of the rules about rewards. Which options go with which name comes from the models of the options."""

from __future__ import annotations

from collections.abc import Iterator

from rollplex.api import reward_rules
from rollplex.api.cel_text import Cel, choice, literal, say, words
from rollplex.api.fields import children
from rollplex.api.reward import OPTIONS

_ITEM = "spec.reward[]"
_ONE = "has(self.name) != has(self.python)"
_KEYS = {name: list(children(section)) for name, section in OPTIONS.items()}
_ALL = [key for keys in _KEYS.values() for key in keys]
# the options that are given, and those that go with a name
_GIVEN = "[" + ", ".join(f"(has(self.options.{key}) ? {literal(key)} : {literal('')})" for key in _ALL) + "]"
_OWN = "{" + ", ".join(f"{literal(name)}: {words(keys)}" for name, keys in _KEYS.items()) + "}[self.name]"
_FOREIGN = f'{_GIVEN}.filter(key, key != "" && !(key in {_OWN}))'
_LENGTH = 'has(r.name) && r.name == "length" && has(r.options.maxTokens) && has(r.options.bufferTokens)'

_FREE = "r.options.maxTokens - r.options.bufferTokens"


def _needed() -> Iterator[Cel]:
    """Options without which a named reward cannot be."""
    for name, section in OPTIONS.items():
        for key, field in children(section).items():
            if field.is_required():
                example = str((field.examples or [""])[0])
                yield Cel(
                    f"!has(self.name) || self.name != {literal(name)} || has(self.options.{key})",
                    say(f"is missing; for example {key}: {example}"),
                    f".options.{key}",
                    at=_ITEM,
                )


REWARD_RULES = {
    reward_rules.reward_is_given: (
        Cel(
            'size(self.reward) > 0 || self.algorithm.name == "opd"',
            say("is missing, and {} learns from it; for example reward: [{name: exact}]", "self.algorithm.name"),
            ".reward",
        ),
    ),
    reward_rules.evaluation_has_a_reward: (
        Cel(
            'size(self.reward) > 0 || self.algorithm.name != "opd" || !has(self.evaluation)',
            say("there is no reward to score with; give one, such as [{name: exact}], or leave it out"),
            ".evaluation",
        ),
    ),
    reward_rules.reward_is_named_or_python: (
        Cel(
            _ONE,
            say(
                "has {} of name and python; give one: name: exact, or python: FILE.py:FUNCTION",
                '(has(self.name) ? "both" : "neither")',
            ),
            at=_ITEM,
        ),
        Cel(
            f'!({_ONE}) || !(has(self.python) || self.name == "exact") || {_GIVEN}.all(key, key == "")',
            say(
                "would not be read, since {}; leave them out",
                '(has(self.python) ? "a function of yours holds its own" : "exact has none")',
            ),
            ".options",
            at=_ITEM,
        ),
    ),
    reward_rules.reward_options_are_its_own: (
        Cel(
            f'has(self.python) || !has(self.name) || self.name == "exact" || size({_FOREIGN}) == 0',
            say(
                "not all of them are options of {}; known here: {}",
                "self.name",
                choice("self.name", {name: ", ".join(keys) for name, keys in _KEYS.items()}),
            ),
            ".options",
            at=_ITEM,
        ),
        *_needed(),
        Cel(
            "!has(self.options.maxTokens) || !has(self.options.bufferTokens) || "
            "self.options.bufferTokens <= self.options.maxTokens",
            say(
                "{} is above maxTokens {}, so that the shortest response would be punished; lower it",
                "self.options.bufferTokens",
                "self.options.maxTokens",
            ),
            ".options.bufferTokens",
            at=_ITEM,
        ),
    ),
    reward_rules.length_penalty_can_act: (
        Cel(
            f"self.reward.all(r, !({_LENGTH}) || {_FREE} < self.rollout.maxTokens)",
            f"self.reward.filter(r, {_LENGTH} && {_FREE} >= self.rollout.maxTokens).map(r, "
            + say(
                "only responses longer than maxTokens - bufferTokens = {} tokens are punished, and rollout.maxTokens "
                "{} ends every one before; lower maxTokens",
                _FREE,
                "self.rollout.maxTokens",
            )
            + ")[0]",
            ".reward",
        ),
    ),
    reward_rules.replay_is_not_evaluated: (
        Cel(
            "!has(self.rollout.replay) || !has(self.evaluation)",
            say("with rollout.replay nothing is sampled, so nothing can be scored; leave it out"),
            ".evaluation",
        ),
    ),
}
