"""Samples that must not be trained on (case 22), as the engine would hand them over."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from rollplex.batch import Prompt
from rollplex.rollout.pending import Pending
from rollplex.rollout.protocol import SampleError


@dataclass
class Logprob:
    logprob: float | None


@dataclass
class Piece:
    token_ids: list[int]
    logprobs: list[Any] | None
    text: str = ""
    finish_reason: str | None = None
    stop_reason: int | str | None = None


@dataclass
class Delta:
    """vLLM's RequestOutput, as far as it is read."""

    outputs: list[Piece]
    finished: bool = False
    prompt_token_ids: list[int] = field(default_factory=lambda: [5, 6, 7])


def pending(limit: int = 3, may_stop: bool = True, text: str | None = None) -> Pending:
    prompt = Prompt("clip", (5, 6, 7), torch.arange(3).expand(3, -1))
    return Pending("s4-p2-i1", prompt, index=2, sample=1, limit=limit, may_stop=may_stop, text=text)


def decode(token_ids: Sequence[int]) -> str:
    return "-".join(map(chr, token_ids))


def delta(
    tokens: list[int], values: list[float | None], finish: str | None = None, stop: int | str | None = None
) -> Delta:
    logprobs = [{token: Logprob(value)} for token, value in zip(tokens, values, strict=True)]
    return Delta([Piece(tokens, logprobs, "".join(map(chr, tokens)), finish, stop)], finished=finish is not None)


def test_deltas_become_a_response() -> None:
    sample = pending()
    assert sample.extend(delta([65], [-0.5])) == 1
    assert sample.extend(delta([66, 67], [-1.5, 0.0], "length")) == 2
    response = sample.response(decode)
    assert (response.prompt, response.sample) == (2, 1)
    assert (response.token_ids, response.logprobs, response.text) == ((65, 66, 67), (-0.5, -1.5, 0.0), "A-B-C")
    assert (response.finish, response.stop) == ("length", None)


def test_stop_keeps_its_reason() -> None:
    sample = pending()
    sample.extend(delta([65, 9], [-0.5, -0.1], "stop", 9))
    response = sample.response(decode)
    assert (response.finish, response.stop, response.token_ids, response.text) == ("stop", 9, (65, 9), "A")


@pytest.mark.parametrize("tokens", [[65, 66], []])
def test_text_of_the_engine_is_kept(tokens: list[int]) -> None:
    """It ends before a stop string, be it empty; decoding the tokens would bring the string back."""
    sample = pending(text="")
    sample.extend(delta(tokens, [-0.5] * len(tokens)))
    end = delta([67], [-0.5], "stop", "C")
    end.outputs[0].text = ""
    sample.extend(end)
    response = sample.response(decode)
    assert (response.token_ids, response.text, response.stop) == ((*tokens, 67), "".join(map(chr, tokens)), "C")


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), float("-inf"), 0.01])
def test_unusable_logprob_names_sample_and_token(value: float | None) -> None:
    sample = pending()
    sample.extend(delta([65], [-0.5]))
    with pytest.raises(SampleError, match=r"sample s4-p2-i1: token 1 \(id 66\) has") as caught:
        sample.extend(delta([66], [value]))
    assert caught.value.sample == "s4-p2-i1"


def test_rounding_above_zero_is_certainty() -> None:
    sample = pending(limit=1)
    sample.extend(delta([65], [1e-7], "length"))
    assert sample.response(decode).logprobs == (0.0,)


@pytest.mark.parametrize("logprobs", [None, [], [{65: Logprob(-0.5)}]])
def test_missing_logprobs_are_refused(logprobs: list[Any] | None) -> None:
    with pytest.raises(SampleError, match=r"s4-p2-i1: 2 tokens came with [01] log probabilities"):
        pending().extend(Delta([Piece([65, 66], logprobs)]))


@pytest.mark.parametrize("entry", [None, {66: Logprob(-0.5)}])
def test_logprob_of_another_token_is_refused(entry: dict[int, Logprob] | None) -> None:
    with pytest.raises(SampleError, match=r"token 0 \(id 65\) has no log probability"):
        pending().extend(Delta([Piece([65], [entry])]))


def test_other_prompt_is_refused() -> None:
    output = delta([65], [-0.5])
    output.prompt_token_ids = [5, 6, 8]
    with pytest.raises(SampleError, match="prompt ids are not those of prompt 'clip'"):
        pending().extend(output)


@pytest.mark.parametrize(
    ("tokens", "finish", "may_stop"),
    [(3, "abort", True), (2, "length", True), (2, "stop", False), (1, "repetition", True), (2, "error", True)],
)
def test_other_ends_are_refused(tokens: int, finish: str, may_stop: bool) -> None:
    sample = pending(may_stop=may_stop)
    sample.extend(delta([65] * tokens, [-0.5] * tokens, finish))
    with pytest.raises(SampleError, match=f"ended by '{finish}' after {tokens} tokens; its limit is 3"):
        sample.response(decode)
