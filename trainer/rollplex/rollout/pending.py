"""A sample on its way through the engine, and what it must look like before anyone trains on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rollplex.batch import Prompt, Response
from rollplex.rollout.protocol import SampleError

_ROUNDING = 1e-6  # a certain token's log probability may come out this far above 0


@dataclass
class Pending:
    """Collects the deltas of one request."""

    name: str
    prompt: Prompt
    index: int  # of the prompt in the batch
    sample: int
    limit: int
    may_stop: bool  # False: the response must have exactly ``limit`` tokens
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    text: str | None = None  # None: the engine makes no text for this sample
    finish: str | None = None
    stop: int | str | None = None

    def extend(self, output: Any) -> int:
        """Take a delta (vLLM's RequestOutput); how many tokens came.

        Raises:
            SampleError: the engine worked on another prompt, or a token has no usable log probability.
        """
        if not self.token_ids and tuple(output.prompt_token_ids) != self.prompt.token_ids:
            raise SampleError(self.name, f"the engine's prompt ids are not those of prompt {self.prompt.id!r}")
        (piece,) = output.outputs
        ids = list(piece.token_ids)
        entries = list(piece.logprobs or [])
        if len(entries) != len(ids):
            raise SampleError(self.name, f"{len(ids)} tokens came with {len(entries)} log probabilities")
        for token, entry in zip(ids, entries, strict=True):
            self.logprobs.append(self._usable(token, entry))
            self.token_ids.append(token)
        if self.text is not None:
            self.text += piece.text
        if output.finished:
            self.finish, self.stop = piece.finish_reason, piece.stop_reason
        return len(ids)

    def _usable(self, token: int, entry: Any) -> float:
        at = f"token {len(self.token_ids)} (id {token})"
        value = entry[token].logprob if entry is not None and token in entry else None
        if value is None:
            raise SampleError(self.name, f"{at} has no log probability")
        if not math.isfinite(value) or value > _ROUNDING:
            raise SampleError(self.name, f"{at} has log probability {value}; the step is refused")
        return min(float(value), 0.0)

    def response(self, decode: Callable[[Sequence[int]], str]) -> Response:
        """The finished sample; ``decode`` makes its text, without the stop token, where the engine made none.

        Raises:
            SampleError: it ended otherwise than by a stop or its limit, or not at the exact length asked for.
        """
        if self.finish == "length" and len(self.token_ids) == self.limit:
            finish: Any = "length"
        elif self.finish == "stop" and self.may_stop:
            finish = "stop"
        else:
            raise SampleError(
                self.name, f"ended by {self.finish!r} after {len(self.token_ids)} tokens; its limit is {self.limit}"
            )
        text = self.text
        if text is None:
            text = decode(self.token_ids[:-1] if isinstance(self.stop, int) else self.token_ids)
        return Response(
            prompt=self.index,
            sample=self.sample,
            token_ids=tuple(self.token_ids),
            logprobs=tuple(self.logprobs),
            finish=finish,
            stop=self.stop if finish == "stop" else None,
            text=text,
        )
