"""Seeds, stops, limits and what an engine refuses."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
import torch

from rollplex.batch import Prompt
from rollplex.rollout.protocol import RetiredError, SampleError, Sampling
from tests.engine.conftest import Rig
from tests.engine.rollout.helpers import run
from tests.engine.tiny import hf_distributions, hf_twin, medium, prompt, text


def question(rig: Rig, seed: int = 0, words: int = 70) -> Prompt:
    return prompt(f"question {seed}", rig.shape, [text(words, seed)])


def test_seeds_make_tokens(rig: Rig) -> None:
    """Equal seeds give equal tokens, whatever else this process does; samples and steps differ from each other."""
    prompts = [question(rig), question(rig, 1)]
    first = run(rig.engine, prompts, 4, Sampling(max_tokens=12), step=3)
    busy = threading.Event()

    def work() -> None:
        weight = torch.randn(128, 128, requires_grad=True)
        while not busy.is_set():
            torch.rand(5)  # the global generator moves on
            (weight @ weight).sum().backward()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        rig.engine.publish()
        second = run(rig.engine, prompts, 4, Sampling(max_tokens=12), step=3)
    finally:
        busy.set()
        thread.join()
    assert [r.token_ids for r in first] == [r.token_ids for r in second]
    assert len({r.token_ids for r in first}) == 8
    later = run(rig.engine, prompts, 4, Sampling(max_tokens=12), step=4)
    assert {r.token_ids for r in later}.isdisjoint(r.token_ids for r in first)


def test_seeds_outlive_the_queue(rig: Rig) -> None:
    """20 samples on 16 places, and the same group alone: neighbours and waiting do not change a sample."""
    prompts = [question(rig, i) for i in range(5)]
    together = run(rig.engine, prompts, 4, Sampling(max_tokens=6))
    rig.engine.publish()
    alone = run(rig.engine, [prompts[0]], 4, Sampling(max_tokens=6))
    assert [r.token_ids for r in together[:4]] == [r.token_ids for r in alone]


@pytest.mark.parametrize("kind", ["text", "video"])
def test_group_shares_the_prefix(rig: Rig, kind: str) -> None:
    """Siblings read only what lies past the last whole block of their prompt."""
    video = medium("video", (4, 8, 8), 3, rig.shape, seconds=0.5)
    item = question(rig) if kind == "text" else prompt("video", rig.shape, [video, text(10, 1)])
    rig.engine.submit(0, [item], 8, Sampling(max_tokens=4))
    read = 0
    while rig.engine.unfinished:
        rig.engine.step()
        read += rig.engine.prefill_tokens
    length = len(item.token_ids)
    whole = (length - 1) // 32 * 32
    assert whole > 0
    assert read == length + 7 * (length - whole)


def test_step_counts(rig: Rig) -> None:
    rig.engine.submit(0, [question(rig, words=40)], 3, Sampling(max_tokens=2))
    rig.engine.step()
    assert (rig.engine.decode_batch, rig.engine.decode_tokens, rig.engine.prefill_tokens) == (3, 3, 40 + 2 * 8)
    assert len(rig.engine.step()) == 3
    assert (rig.engine.decode_batch, rig.engine.decode_tokens, rig.engine.prefill_tokens) == (3, 3, 0)
    assert rig.engine.unfinished == rig.engine.stalled == 0


def test_limits_are_exact(rig: Rig) -> None:
    limits = ((1, 5, 9), (2, 3, 20))
    prompts = [question(rig), question(rig, 1)]
    responses = run(rig.engine, prompts, 3, Sampling(limits=limits))
    assert [len(r.token_ids) for r in responses] == [1, 5, 9, 2, 3, 20]
    assert {(r.finish, r.stop) for r in responses} == {("length", None)}


def test_stop_token_belongs_to_the_response(rig: Rig) -> None:
    whole = run(rig.engine, [question(rig)], 1, Sampling(max_tokens=12))[0]
    stop = whole.token_ids[5]
    length = whole.token_ids.index(stop) + 1
    (stopped,) = run(rig.engine, [question(rig)], 1, Sampling(max_tokens=12, stop_token_ids=(stop,)))
    assert (stopped.finish, stopped.stop) == ("stop", stop)
    assert stopped.token_ids == whole.token_ids[:length]
    assert len(stopped.logprobs) == length
    limits = ((12,),)
    sampling = Sampling(stop_token_ids=(stop,), stop=(whole.text[:1],), limits=limits, exact=True)
    (exact,) = run(rig.engine, [question(rig)], 1, sampling)
    assert (exact.token_ids, exact.finish) == (whole.token_ids, "length")


def test_stop_string_keeps_sampled_tokens(rig: Rig) -> None:
    """Case 23: every token up to the one that completed the string was sampled by the policy, and no other is there."""
    whole = run(rig.engine, [question(rig)], 1, Sampling(max_tokens=40))[0]
    tokenizer = rig.engine._engine.get_tokenizer()
    words = [tokenizer.decode([token]) for token in whole.token_ids]
    at = next(i for i, word in enumerate(words) if i > 2 and word.startswith("<|filler"))
    at = words.index(words[at])
    (stopped,) = run(rig.engine, [question(rig)], 1, Sampling(max_tokens=40, stop=(words[at],)))
    assert (stopped.finish, stopped.stop) == ("stop", words[at])
    assert stopped.token_ids == whole.token_ids[: at + 1]
    assert stopped.logprobs == pytest.approx(whole.logprobs[: at + 1], abs=1e-5)
    assert stopped.text == whole.text[: whole.text.index(words[at])]


def test_text_is_what_was_sampled(rig: Rig) -> None:
    """Text made at the end and text made token by token (a stop string is watched for) are the same."""
    plain = run(rig.engine, [question(rig)], 4, Sampling(max_tokens=20))
    watched = run(rig.engine, [question(rig)], 4, Sampling(max_tokens=20, stop=("never said",)))
    assert [r.token_ids for r in plain] == [r.token_ids for r in watched]
    # token by token, a cut-off character at the end is held back
    assert [r.text.rstrip("\ufffd") for r in plain] == [r.text.rstrip("\ufffd") for r in watched]


def test_folders_end_of_text_does_not_stop(rig: Rig) -> None:
    """Only the job's stop ids end a response: the folder's end-of-text id is an ordinary token without them."""
    eos = rig.shape.eos_tokens[0]
    likely = run(rig.engine, [question(rig)], 1, Sampling(temperature=0.01, max_tokens=1))[0].token_ids[0]
    with torch.no_grad():
        output = rig.policy.language.output_layer.weight
        output[eos] = 2 * output[likely]
    rig.engine.publish()
    responses = run(rig.engine, [question(rig)], 8, Sampling(max_tokens=12))
    assert any(eos in r.token_ids[:-1] for r in responses)
    assert {len(r.token_ids) for r in responses} == {12}


def test_greedy_takes_the_likeliest_token_each_time(rig: Rig) -> None:
    """By transformers' own pass; the temperature, the step and so the seed change nothing."""
    video = medium("video", (4, 8, 8), 3, rig.shape, seconds=0.5)
    prompts = [question(rig), prompt("video", rig.shape, [video, text(10, 1)])]
    greedy = Sampling(temperature=2.0, max_tokens=8, greedy=True)
    responses = run(rig.engine, prompts, 1, greedy)
    twin = hf_twin(rig.policy)
    for item, response in zip(prompts, responses, strict=True):
        likeliest = hf_distributions(twin, item, response.token_ids, 1.0).argmax(-1)
        assert response.token_ids == tuple(likeliest.tolist())
        assert all(-10 < logprob < 0 for logprob in response.logprobs)
    again = run(rig.engine, prompts, 1, replace(greedy, temperature=0.5), step=9)
    assert [r.token_ids for r in again] == [r.token_ids for r in responses]
    with pytest.raises(ValueError, match="one response a prompt, not 4"):
        rig.engine.submit(0, prompts, 4, greedy)
    assert rig.engine.unfinished == 0


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_garbage_is_refused_with_the_samples_id(rig: Rig, value: float) -> None:
    """Case 22: weights that give no distribution end the step, and the engine works again after it."""
    with torch.no_grad():
        rig.policy.language.decoder.final_layernorm.weight.fill_(value)
    rig.engine.publish()
    rig.engine.submit(5, [question(rig)], 1, Sampling(max_tokens=4))
    with pytest.raises(SampleError, match=r"s5-p0-i0: token 0 \(id \d+\) has log probability nan"):
        rig.engine.step()
    rig.engine.abort_all()
    assert rig.engine.unfinished == 0


def test_retired_engine_refuses(rig: Rig) -> None:
    """Case 36: between the weights' change and the publish nothing is sampled."""
    version = rig.engine.version
    rig.engine.retire()
    with pytest.raises(RetiredError, match=f"cannot submit: weight version {version + 1} is not published"):
        rig.engine.submit(0, [question(rig)], 1, Sampling())
    with pytest.raises(RetiredError, match="cannot step"):
        rig.engine.step()
    assert rig.engine.publish() == version + 1
    assert len(run(rig.engine, [question(rig)])) == 1


def test_busy_engine_keeps_its_weights(rig: Rig) -> None:
    rig.engine.submit(2, [question(rig)], 2, Sampling(max_tokens=6))
    rig.engine.step()
    for call in (rig.engine.retire, rig.engine.publish):
        with pytest.raises(RuntimeError, match="2 samples are unfinished, first s2-p0-i0"):
            call()
    with pytest.raises(ValueError, match="s2-p0-i0 is unfinished already"):
        rig.engine.submit(2, [question(rig)], 1, Sampling())
    rig.engine.abort_all()
    assert rig.engine.unfinished == 0
    rig.engine.publish()  # the aborted samples have let go of the cache
    assert len(run(rig.engine, [question(rig)], 2, step=2)) == 2


def test_too_long_is_refused_before_anything_is_queued(rig: Rig) -> None:
    prompts = [question(rig), prompt("long", rig.shape, [text(1000, 1)])]
    with pytest.raises(ValueError, match=r"'long' has 1000 tokens; with rollout.maxTokens 25 .* max_model_len 1024"):
        rig.engine.submit(0, prompts, 2, Sampling(max_tokens=25))
    assert rig.engine.unfinished == 0
