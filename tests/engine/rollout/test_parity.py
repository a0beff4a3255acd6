"""The engine's log probabilities are those of one full pass of transformers, whatever the prompt holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from rollplex.api.shapes import ModelShape
from rollplex.batch import Media, Prompt
from rollplex.rollout.build import sampling_params
from rollplex.rollout.inputs import engine_input
from rollplex.rollout.loader import SharedPositions
from rollplex.rollout.protocol import Sampling
from tests.engine.conftest import Rig
from tests.engine.rollout.helpers import run, worst_difference
from tests.engine.tiny import medium, prompt, text


def mixed_prompts(shape: ModelShape) -> list[Prompt]:
    """Text only, one image, one video, several media; equal ids with other pixels and with other timing."""
    image, small = medium("image", (1, 8, 12), 1, shape), medium("image", (1, 4, 6), 2, shape)
    video = medium("video", (4, 8, 8), 3, shape, seconds=0.5)
    other = medium("video", (4, 8, 8), 4, shape, seconds=0.5)
    slower = Media("video", video.patches, video.grid, 1.0)

    def about(name: str, item: Media) -> Prompt:
        return prompt(name, shape, [text(3, 1), item, text(9, 2)])

    return [
        prompt("text", shape, [text(40, 0)]),
        prompt("one token", shape, [text(1, 9)]),
        about("image", image),
        about("video", video),
        about("other pixels", other),
        about("other timing", slower),
        prompt("many", shape, [text(3, 1), image, text(9, 2), video, text(2, 5), small, text(5, 3)]),
        prompt("media first", shape, [other, small, text(40, 3)]),
        # a placeholder id that stands for nothing, as text with a literal <|video_pad|> has it
        prompt("stray", shape, [text(3, 1), [shape.video_token, shape.image_token], image, text(4, 7)]),
    ]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.5])
def test_parity_temperatures(rig: Rig, temperature: float) -> None:
    prompts = mixed_prompts(rig.shape)
    responses = run(rig.engine, prompts, 2, Sampling(temperature=temperature, max_tokens=10))
    assert [len(r.token_ids) for r in responses] == [10] * 18
    assert worst_difference(rig.policy, prompts, responses, temperature) <= 1e-4


def test_parity_other_temperature_differs(rig: Rig) -> None:
    """The bound above would see raw log probabilities, or another temperature."""
    prompts = mixed_prompts(rig.shape)[:1]
    responses = run(rig.engine, prompts, 1, Sampling(temperature=1.5))
    assert worst_difference(rig.policy, prompts, responses, 1.0) > 1e-2


def test_parity_prompts_longer_than_a_step(rig: Rig) -> None:
    """Long prompts that do not fit one engine step together: vLLM on CPU fails if it reads a seeded prompt in parts."""
    prompts = [prompt(f"long {i}", rig.shape, [text(900, 50 + i)]) for i in range(4)]
    responses = run(rig.engine, prompts, 2, Sampling(max_tokens=3))
    assert worst_difference(rig.policy, prompts, responses) <= 1e-4


def test_parity_media_larger_than_a_step(rig: Rig) -> None:
    """Six videos of 400 tokens each: more than a step reads and more than the encoder's cache holds."""
    media = [medium("video", (4, 20, 20), 60 + i, rig.shape, 1.0) for i in range(6)]
    prompts = [prompt(f"video {i}", rig.shape, [item, text(4, i)]) for i, item in enumerate(media)]
    responses = run(rig.engine, prompts, 2, Sampling(max_tokens=3))
    assert worst_difference(rig.policy, prompts, responses) <= 1e-4


def test_parity_when_the_cache_runs_full(rig: Rig) -> None:
    """4,096 tokens of KV for 16 samples that grow to 300 each: some are thrown out and read again."""
    prompts = [prompt(f"grows {i}", rig.shape, [text(150, 70 + i)]) for i in range(16)]
    rig.engine.submit(0, prompts, 1, Sampling(max_tokens=150))
    responses, read = [], 0
    while rig.engine.unfinished:
        responses += rig.engine.step()
        read += rig.engine.prefill_tokens
    assert read > 16 * 150, "nothing was thrown out: make the cache smaller"
    assert worst_difference(rig.policy, prompts, responses) <= 1e-4
    rig.engine.publish()
    first = next(r for r in responses if r.prompt == 15)
    (alone,) = run(rig.engine, [prompts[15]], 1, Sampling(max_tokens=150))
    assert alone.token_ids == first.token_ids


def test_parity_pixels_and_timing_reach_the_policy(rig: Rig) -> None:
    """Other pixels or timing: the same tokens get other log probabilities. Ids are equal unless they say the time."""
    video, other, slower = mixed_prompts(rig.shape)[3:6]
    assert video.token_ids == other.token_ids
    assert (video.token_ids == slower.token_ids) != rig.shape.family.time_as_text
    responses = run(rig.engine, [video], 1, Sampling(max_tokens=10))
    assert worst_difference(rig.policy, [other], responses) > 1e-2
    assert worst_difference(rig.policy, [slower], responses) > 1e-3


def test_ids_are_not_encoded_again(rig: Rig) -> None:
    """Ids that decoding and encoding would change reach the model as they are (the engine's are checked by Pending)."""
    ids = text(40, 0)
    tokenizer = AutoTokenizer.from_pretrained(rig.folder)
    assert tokenizer.encode(tokenizer.decode(ids)) != ids
    prompts = [prompt("text", rig.shape, [ids])]
    responses = run(rig.engine, prompts)
    assert worst_difference(rig.policy, prompts, responses) <= 1e-4


def test_positions_are_the_prompts(rig: Rig) -> None:
    for item in mixed_prompts(rig.shape):
        assert torch.equal(rig.engine.positions(item), item.positions), item.id


def test_positions_in_the_running_engine(rig: Rig) -> None:
    """What the model runner holds for live requests is what ``positions`` says."""
    prompts = mixed_prompts(rig.shape)
    rig.engine.submit(0, prompts, 1, Sampling(max_tokens=4))
    rig.engine.step()
    runner = rig.engine._engine.model_executor.driver_worker.worker.model_runner
    held = {name.rsplit("-", 1)[0]: state.mrope_positions for name, state in runner.requests.items()}
    for index, item in enumerate(prompts):
        assert torch.equal(held[f"s0-p{index}-i0"], item.positions), item.id


Described = tuple[str, tuple[int, int, int], float]  # kind, grid, seconds

media = st.one_of(
    st.builds(lambda h, w: ("image", (1, 2 * h, 2 * w), 0.0), h=st.integers(1, 4), w=st.integers(1, 4)),
    st.builds(
        lambda t, h, w, seconds: ("video", (t, 2 * h, 2 * w), seconds),
        t=st.integers(1, 5),
        h=st.integers(1, 4),
        w=st.integers(1, 4),
        seconds=st.sampled_from([0.04, 0.3, 1 / 3, 0.5, 0.7, 1.0, 1.1, 2.0, 5.0]),
    ),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(st.tuples(media, st.integers(0, 5)), max_size=4), last=st.integers(1, 5))
def test_positions_agree_with_vllms_rule(rig: Rig, parts: list[tuple[Described, int]], last: int) -> None:
    pieces: list[list[int] | Media] = []
    for (kind, grid, seconds), words in parts:
        pieces += [medium(kind, grid, 0, rig.shape, seconds), text(words, 1)]
    item = prompt("any", rig.shape, [*pieces, text(last, 2)])
    inputs = engine_input(item, 2)
    engine = rig.engine._engine
    params = sampling_params(Sampling(), limit=1, seed=0)
    request = engine.input_processor.process_inputs("rule", inputs, params, engine.get_supported_tasks())
    (model,) = engine.apply_model(lambda model: model)
    features = request.mm_features or []
    if rig.shape.family.time_as_text:  # vLLM has a video begin before its first marker, and looks for it from there on
        features = [
            replace(f, mm_position=replace(f.mm_position, offset=f.mm_position.offset - (f.modality == "video")))
            for f in features
        ]
    vllms_own: Any = super(SharedPositions, model)
    theirs, delta = vllms_own.get_mrope_input_positions(request.prompt_token_ids, features)
    assert torch.equal(theirs, item.positions)
    assert delta == item.next_position - len(item.token_ids)
