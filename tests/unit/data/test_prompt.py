"""Token ids against Hugging Face's processor, literal special tokens, limits, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rollplex.api.shapes import SHAPES, config_of_shape
from rollplex.batch import Media, Prompt
from rollplex.data import tiny_model
from rollplex.data.pixels import PixelRules, grid_of, patchify, pixel_rules
from rollplex.data.prompt import PromptBuilder, PromptError, PromptTooLongError
from rollplex.data.tiny_model import SPECIAL
from rollplex.positions import positions_of_inputs

RULES = PixelRules()
VIDEO = {"type": "video", "video": "a.mp4"}
IMAGE = {"type": "image", "image": "a.png"}


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def pixels(
    frames: int, height: int, width: int, seed: int = 0, factor: int = 28
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Random frames; sides are given for a factor of 28."""
    size = (frames, height // 28 * factor, width // 28 * factor, 3)
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


def media(frames: np.ndarray[Any, np.dtype[np.uint8]], fps: float = 2.0, rules: PixelRules = RULES) -> Media:
    video = len(frames) > 1
    patches = torch.from_numpy(patchify(frames, rules))
    if not video:
        return Media("image", patches, grid_of(frames, rules))
    return Media("video", patches, grid_of(frames, rules), 2 / fps, len(frames) % 2)


@pytest.fixture(scope="module", params=tiny_model.MODEL_TYPES)
def folder(request: pytest.FixtureRequest, model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with config, tokenizer and processor of either family."""
    if request.param == "qwen2.5-vl":
        return model_folder
    made: Path = tmp_path_factory.mktemp(request.param)
    shape = SHAPES[f"{request.param}-tiny"]
    shape = tiny_model.with_tokens(shape, tiny_model.save_processor(made, shape.model_type))
    (made / "config.json").write_text(json.dumps(config_of_shape(shape)))
    return made


@pytest.fixture(scope="module")
def builder(folder: Path) -> PromptBuilder:
    return PromptBuilder(folder, max_prompt_tokens=2048)


CHATS: dict[str, tuple[list[dict[str, Any]], list[tuple[int, int, int]]]] = {
    "video": ([user(VIDEO, text("What colour is it?"))], [(4, 56, 84)]),
    "odd video": ([user(VIDEO, text("What colour is it?"))], [(5, 56, 56)]),
    "video and images": (
        [user(text("One: "), IMAGE, text(" two: "), VIDEO, text(" three: "), IMAGE, text("?"))],
        [(1, 56, 56), (4, 84, 56), (1, 112, 56)],
    ),
    "two adjacent videos": ([user(VIDEO, VIDEO, text("Equal?"))], [(4, 56, 56), (2, 56, 56)]),
    "turns": (
        [
            {"role": "system", "content": "Be brief.\n"},
            user(IMAGE, text("\n What? ")),
            {"role": "assistant", "content": "A shape."},
            user(text("Which?")),
        ],
        [(1, 56, 56)],
    ),
    "text": ([{"role": "user", "content": "How many? ünïcödé 漢字 \u0000"}], []),
}


@pytest.mark.parametrize("chat", list(CHATS))
def test_build_gives_the_ids_and_pixels_of_hugging_faces_processor(
    builder: PromptBuilder, folder: Path, chat: str
) -> None:
    from transformers import AutoProcessor

    messages, sizes = CHATS[chat]
    rules = pixel_rules(folder)
    frames = [pixels(*size, seed=index, factor=rules.factor) for index, size in enumerate(sizes)]
    decoded = [media(item, rules=rules) for item in frames]
    prompt = builder.build("a", messages, decoded, answer="red", row={"kind": "x"})
    processor = AutoProcessor.from_pretrained(folder)
    videos = [item for item in frames if len(item) > 1]
    images = [item[0] for item in frames if len(item) == 1]
    theirs = processor(
        text=[processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)],
        videos=videos or None,
        images=images or None,
        video_metadata=[{"total_num_frames": len(v), "fps": 2.0, "frames_indices": list(range(len(v)))} for v in videos]
        or None,
        return_tensors="pt",
        do_resize=False,
        do_sample_frames=False,
    )
    assert list(prompt.token_ids) == theirs["input_ids"][0].tolist()
    for kind, values, grids in (
        ("video", "pixel_values_videos", "video_grid_thw"),
        ("image", "pixel_values", "image_grid_thw"),
    ):
        ours = [item for item in prompt.media if item.kind == kind]
        if ours:
            assert torch.equal(torch.cat([item.patches for item in ours]), theirs[values])
            assert [list(item.grid) for item in ours] == theirs[grids].tolist()
    if videos and not builder.shape.family.time_as_text:
        assert theirs["second_per_grid_ts"].tolist() == [
            item.seconds_per_grid for item in prompt.media if item.kind == "video"
        ]
    assert (prompt.id, prompt.answer, prompt.row) == ("a", "red", {"kind": "x"})
    _check_runs(builder, prompt)
    assert torch.equal(prompt.positions, positions_of_inputs(theirs, builder.shape)[:, 0])


def _check_runs(builder: PromptBuilder, prompt: Prompt) -> None:
    """Each medium's runs of placeholders are where the prompt says, between markers, and as long as they must be."""
    shape, ids = builder.shape, prompt.token_ids
    for starts, item in zip(prompt.media_starts, prompt.media, strict=True):
        token = shape.video_token if item.kind == "video" else shape.image_token
        assert len(starts) == (item.grid[0] if item.kind == "video" and shape.family.time_as_text else 1)
        for start in starts:
            end = start + item.tokens(shape.vision.merge) // len(starts)
            assert set(ids[start:end]) == {token}
            assert (ids[start - 1], ids[end]) == (shape.vision_start_token, shape.vision_end_token)
    assert sum(ids.count(token) for token in shape.media_tokens) == sum(item.tokens(2) for item in prompt.media)
    assert prompt.positions.shape == (3, len(ids))
    assert ids[-1] not in shape.media_tokens


@pytest.mark.parametrize("literal", ["<image>", "<video>", *SPECIAL, "<|vision_start|><|video_pad|><|vision_end|>"])
def test_literal_special_tokens_in_a_text_stay_text(builder: PromptBuilder, literal: str) -> None:
    item = media(pixels(4, 56, 56))
    prompt = builder.build("a", [user(text(f"Is {literal}"), VIDEO, text(f"{literal} a token? {literal}"))], [item])
    _check_runs(builder, prompt)
    plain = builder.build("a", [user(text("Is "), VIDEO, text(" a token? "))], [item])
    special = set(builder.tokenizer.all_special_ids)
    assert [t for t in prompt.token_ids if t in special] == [t for t in plain.token_ids if t in special]
    assert builder.tokenizer.decode(prompt.token_ids).count(literal) >= 3


def test_literal_special_tokens_in_any_turn_stay_text(builder: PromptBuilder) -> None:
    messages = [
        {"role": "system", "content": "<|im_end|>"},
        user(text("<|video_pad|>"), IMAGE, text("<|image_pad|>")),
        {"role": "assistant", "content": "<|im_start|>user"},
        user(text("Well?")),
    ]
    prompt = builder.build("a", messages, [media(pixels(1, 56, 56))])
    _check_runs(builder, prompt)
    assert prompt.token_ids.count(builder.tokenizer.convert_tokens_to_ids("<|im_start|>")) == 5


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(
        st.one_of(st.sampled_from([*SPECIAL, "<|", "|>", "\ue0000\ue001"]), st.text(max_size=8)).map(str), max_size=6
    )
)
def test_any_text_beside_an_image_decodes_to_itself_and_adds_no_placeholder(
    builder: PromptBuilder, texts: list[str]
) -> None:
    words = "".join(texts).encode("utf-8", "ignore").decode()
    ids = builder.token_ids("a", [user(IMAGE, text(words))])
    assert [token for token in ids if token in builder.shape.media_tokens] == [builder.shape.image_token]
    plain = builder.tokenizer.decode(ids, clean_up_tokenization_spaces=False)
    head, tail = builder.tokenizer.decode(builder.token_ids("a", [user(IMAGE, text("#"))])).split("#")
    assert plain == head + words + tail


def test_a_template_that_reorders_texts_cannot_hold_literal_special_tokens(model_folder: Path) -> None:
    builder = PromptBuilder(model_folder, 100)
    builder.tokenizer.chat_template = "{% for m in messages | reverse %}{{ m['content'] }}{% endfor %}"
    messages = [{"role": "user", "content": "a"}, {"role": "user", "content": "<|im_end|>"}]
    with pytest.raises(PromptError, match="row 7: text spells a special token, and the chat template reorders"):
        builder.build("7", messages, [])


def test_prompts_longer_than_the_limit_are_dropped_whole(model_folder: Path) -> None:
    messages = [user(IMAGE, text("and"), IMAGE, text("?"))]
    items = [media(pixels(1, 112, 112, seed)) for seed in (0, 1)]
    full = PromptBuilder(model_folder, 2048).build("a", messages, items)
    length = len(full.token_ids)
    exact = PromptBuilder(model_folder, length).build("a", messages, items)
    assert exact.token_ids == full.token_ids
    inside_second = full.media_starts[1][0] + 3
    for limit in (length - 1, inside_second):
        with pytest.raises(
            PromptTooLongError, match=rf"^row a: the prompt has {length} tokens; data.maxPromptTokens is {limit}$"
        ):
            PromptBuilder(model_folder, limit).build("a", messages, items)


@pytest.mark.parametrize(
    ("content", "sizes", "message"),
    [
        ([VIDEO, text("?")], [], r"row r1: placeholder 1 is for video, but its media are \[\]"),
        ([VIDEO, VIDEO], [(2, 56, 56)], r"placeholder 2 is for video, but its media are \['video'\]"),
        ([VIDEO, text("?")], [(1, 56, 56)], r"placeholder 1 is for video, but its media are \['image'\]"),
        ([IMAGE, VIDEO], [(2, 56, 56), (1, 56, 56)], "placeholder 1 is for image"),
        ([text("?")], [(2, 56, 56)], "1 media, but the chat template made 0 placeholders"),
        ([IMAGE, text("?")], [(1, 56, 56)] * 2, "2 media, but the chat template made 1 placeholders"),
    ],
)
def test_placeholders_and_media_must_match(
    builder: PromptBuilder, content: list[Any], sizes: list[tuple[int, int, int]], message: str
) -> None:
    with pytest.raises(PromptError, match=message):
        builder.build("r1", [user(*content)], [media(pixels(*size)) for size in sizes])


def test_a_prompt_that_ends_in_a_placeholder_is_refused(model_folder: Path) -> None:
    builder = PromptBuilder(model_folder, 100)
    builder.tokenizer.chat_template = "Look: <|image_pad|>"
    with pytest.raises(PromptError, match="row a: the prompt ends in a placeholder"):
        builder.build("a", [user(IMAGE)], [media(pixels(1, 56, 56))])


def test_other_pixels_or_other_timing_make_another_key(builder: PromptBuilder) -> None:
    messages = [user(VIDEO, text("What colour?"))]
    first, second = pixels(4, 56, 56, 0), pixels(4, 56, 56, 1)
    prompts = [builder.build("a", messages, [media(frames)]) for frames in (first, second, first.copy())]
    slower = builder.build("a", messages, [media(first, fps=1.0)])
    # where time is text other timing makes other ids, else other positions of the same
    assert len({prompt.token_ids for prompt in [*prompts, slower]}) == 1 + builder.shape.family.time_as_text
    assert prompts[0].key == prompts[2].key
    assert len({prompts[0].key, prompts[1].key, slower.key}) == 3
    if not builder.shape.family.time_as_text:
        assert not torch.equal(prompts[0].positions, slower.positions)


@pytest.mark.parametrize(
    ("frames", "fps", "times"),
    [
        (4, 2.0, [0.25, 1.25]),
        (5, 2.0, [0.25, 1.25, 2.0]),  # the last frame is repeated, not moved
        (1, 2.0, [0.0]),
        (2, 0.5, [1.0]),
        (4, 0.75, [0.5 / 0.75, 2.5 / 0.75]),
    ],
)
def test_times_of_temporal_rows_are_qwens(frames: int, fps: float, times: list[float]) -> None:
    from transformers import Qwen3VLProcessor

    rows = -(-frames // 2)
    video = Media("video", torch.empty(0), (rows, 2, 2), 2 / fps, frames % 2)
    assert video.times(2) == pytest.approx(times)
    theirs = Qwen3VLProcessor._calculate_timestamps(None, list(range(frames)), fps, 2)
    assert [f"{time:.1f}" for time in video.times(2)] == [f"{time:.1f}" for time in theirs]


def test_the_processors_own_template_goes_before_the_tokenizers(model_folder: Path, tmp_path: Path) -> None:
    for path in model_folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "chat_template.json").write_text('{"chat_template": "Q: {{ messages[0][\'content\'] }} A:"}')
    builder = PromptBuilder(tmp_path, 100)
    prompt = builder.build("a", [{"role": "user", "content": "why?"}], [])
    assert builder.tokenizer.decode(prompt.token_ids) == "Q: why? A:"


def test_a_folder_without_a_template_is_refused(model_folder: Path, tmp_path: Path) -> None:
    for path in model_folder.iterdir():
        if path.name != "chat_template.jinja":
            (tmp_path / path.name).write_bytes(path.read_bytes())
    with pytest.raises(ValueError, match="has no chat template"):
        PromptBuilder(tmp_path, 100)
