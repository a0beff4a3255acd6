"""Response lengths fixed by a word on the command line (``--response-tokens``)."""

from __future__ import annotations

import math
import random
import re

from rollplex.api.errors import JobError

_FORM = re.compile(r"(?P<fixed>\d+)|lognormal:(?P<median>\d+(\.\d+)?):(?P<sigma>\d+(\.\d+)?)")


def response_lengths(spec: str, prompts: int, group_size: int, seed: int, longest: int) -> tuple[tuple[int, ...], ...]:
    """Tokens of every response, [prompts][group_size], the same for the same seed.

    ``200``: all of them. ``lognormal:MEDIAN:SIGMA``: exp(normal(ln MEDIAN, SIGMA)), rounded, within 1 and ``longest``
    (the job's ``rollout.maxTokens``).

    Raises:
        JobError: another form, or a length that ``rollout.maxTokens`` does not allow.
    """
    match = _FORM.fullmatch(spec)
    if match is None:
        raise JobError.at("--response-tokens", f"{spec!r} is neither a number nor lognormal:MEDIAN:SIGMA")
    if match["fixed"]:
        length = int(match["fixed"])
        if not 1 <= length <= longest:
            raise JobError.at("--response-tokens", f"{length} is not within 1 and rollout.maxTokens {longest}")
        return ((length,) * group_size,) * prompts
    median, sigma = float(match["median"]), float(match["sigma"])
    if not 1 <= median <= longest:
        raise JobError.at("--response-tokens", f"median {median:g} is not within 1 and rollout.maxTokens {longest}")
    rng = random.Random(f"{seed}/{spec}")

    def draw() -> int:
        return min(longest, max(1, round(math.exp(rng.gauss(math.log(median), sigma)))))

    return tuple(tuple(draw() for _ in range(group_size)) for _ in range(prompts))
