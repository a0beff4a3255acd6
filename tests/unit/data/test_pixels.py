"""Resizing and patches against Hugging Face's own Qwen2-VL processors, and Qwen's sizes (cases 9, 15, 16)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rollplex.data.pixels import PixelRules, grid_of, patchify, pixel_rules, smart_resize
from rollplex.data.tiny_model import save_processor

RULES = PixelRules()


@settings(max_examples=300, deadline=None)
@given(
    height=st.integers(1, 6000),
    width=st.integers(1, 6000),
    least=st.sampled_from([56 * 56, 4 * 28 * 28, 128 * 28 * 28]),
    most=st.sampled_from([64 * 28 * 28, 200_704, 12_845_056]),
)
def test_smart_resize_is_hugging_faces(height: int, width: int, least: int, most: int) -> None:
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize as theirs

    least = min(least, most)
    try:
        expected = theirs(height, width, 28, least, most)
    except ValueError:
        with pytest.raises(ValueError, match="the limit is 200"):
            smart_resize(height, width, factor=28, min_pixels=least, max_pixels=most)
        return
    assert smart_resize(height, width, factor=28, min_pixels=least, max_pixels=most) == expected


@settings(max_examples=200, deadline=None)
@given(
    rows=st.integers(1, 20),
    height=st.integers(32, 2000),
    width=st.integers(32, 2000),
    least=st.sampled_from([4096, 128 * 32 * 32, 10_000]),
)
def test_the_least_size_of_a_qwen3_vls_video_is_of_all_its_frames(
    rows: int, height: int, width: int, least: int
) -> None:
    from transformers.models.qwen3_vl.video_processing_qwen3_vl import smart_resize as theirs

    frames, most = 2 * rows, 200_704
    rules = PixelRules(video_min=least, whole_videos=True, patch=16)
    expected = theirs(frames, height, width, factor=32, min_pixels=least, max_pixels=frames * most)
    assert smart_resize(height, width, factor=32, min_pixels=rules.least(frames), max_pixels=most) == expected


@pytest.mark.parametrize(
    ("width", "height", "expected"), [(26, 28, (84, 56)), (27, 332, (336, 28)), (28, 28, (56, 56))]
)
def test_small_pictures_are_enlarged_by_the_rule(width: int, height: int, expected: tuple[int, int]) -> None:
    got = smart_resize(height, width, factor=28, min_pixels=56 * 56, max_pixels=28 * 28 * 1280)
    assert got == expected
    assert got[0] * got[1] >= 56 * 56


@pytest.mark.parametrize(("width", "height"), [(1, 300), (300, 1), (8192, 30)])
def test_aspect_ratios_above_the_limit_are_refused(width: int, height: int) -> None:
    with pytest.raises(ValueError, match=rf"{width}x{height} has an aspect ratio of \d+; the limit is 200"):
        smart_resize(height, width, factor=28, min_pixels=56 * 56, max_pixels=28 * 28 * 1280)


@pytest.mark.parametrize("frames", [1, 2, 3, 5, 30])
def test_patches_of_a_video_are_bit_equal_to_the_folders_processor(model_folder: Path, frames: int) -> None:
    from transformers import AutoProcessor

    pixels = np.random.default_rng(frames).integers(0, 256, (frames, 56, 84, 3), dtype=np.uint8)
    processor = AutoProcessor.from_pretrained(model_folder).video_processor
    theirs = processor(videos=[pixels], do_resize=False, do_sample_frames=False, return_tensors="pt")
    rules = pixel_rules(model_folder)
    assert torch.equal(torch.from_numpy(patchify(pixels, rules)), theirs["pixel_values_videos"])
    assert list(grid_of(pixels, rules)) == theirs["video_grid_thw"][0].tolist()
    # the formula of tokens: a temporal row for every two frames, an odd last one included
    t, h, w = grid_of(pixels, rules)
    assert (t, h, w) == ((frames + 1) // 2, 4, 6)
    assert t * h * w // rules.merge**2 == (frames + 1) // 2 * 2 * 3


def test_an_odd_last_frame_is_repeated_once() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 56, 56, 3), dtype=np.uint8)
    np.testing.assert_array_equal(patchify(pixels, RULES), patchify(np.concatenate([pixels, pixels[-1:]]), RULES))


def test_patches_of_an_image_are_bit_equal_to_the_folders_processor(model_folder: Path) -> None:
    from transformers import AutoProcessor

    pixels = np.random.default_rng(0).integers(0, 256, (84, 112, 3), dtype=np.uint8)
    processor = AutoProcessor.from_pretrained(model_folder).image_processor
    theirs = processor(images=[pixels], do_resize=False, return_tensors="pt")
    assert torch.equal(torch.from_numpy(patchify(pixels[None], RULES)), theirs["pixel_values"])
    assert list(grid_of(pixels[None], RULES)) == theirs["image_grid_thw"][0].tolist()


def test_patchify_writes_into_what_it_is_given() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (2, 56, 56, 3), dtype=np.uint8)
    out = np.full((16, 1176), np.nan, dtype=np.float32)
    assert patchify(pixels, RULES, out) is out
    np.testing.assert_array_equal(out, patchify(pixels, RULES))


def test_pixel_rules_read_both_layouts_of_a_folder(model_folder: Path, tmp_path: Path) -> None:
    assert pixel_rules(model_folder) == PixelRules(image_max=64 * 28 * 28)
    old = {"min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({**old, "image_mean": [0.5, 0.5, 0.5]}))
    assert pixel_rules(tmp_path) == PixelRules(image_max=12845056, mean=(0.5, 0.5, 0.5))
    (tmp_path / "video_preprocessor_config.json").write_text(json.dumps({"size": {"shortest_edge": 100_352}}))
    assert pixel_rules(tmp_path).video_min == 100_352
    assert pixel_rules(tmp_path).least(8) == 100_352
    save_processor(tmp_path / "qwen3", "qwen3_vl")
    three = pixel_rules(tmp_path / "qwen3")
    assert (three.patch, three.mean, three.whole_videos) == (16, (0.5, 0.5, 0.5), True)
    assert three.least(8) == three.video_min / 8


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "has no preprocessor_config.json"), ("{", "is not JSON"), ('{"do_rescale": false}', "not supported")],
)
def test_pixel_rules_say_what_is_wrong_with_a_folder(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "preprocessor_config.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        pixel_rules(tmp_path)
