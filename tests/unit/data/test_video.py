"""Which frames are taken, that they are the right ones, and what becomes of files that do not decode."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from rollplex.batch import Media
from rollplex.data.media import MediaFile
from rollplex.data.pixels import MediaError, PixelRules
from rollplex.data.video import VideoBudget, read_media, sample_frames
from rollplex.positions import rope_positions
from tests.unit.data.files import Video, numbered

RULES = PixelRules(video_min=28 * 28)


@given(
    total=st.integers(1, 5000),
    native=st.floats(0.5, 120),
    fps=st.floats(0.1, 60),
    most=st.integers(1, 64),
)
def test_sample_frames_stays_in_its_budget(total: int, native: float, fps: float, most: int) -> None:
    indices, sampled_fps = sample_frames(total, native, VideoBudget(fps=fps, max_frames=most))
    assert 1 <= len(indices) <= min(most, total)
    assert indices[0] == 0
    assert indices == sorted(set(indices))
    assert indices[-1] < total
    assert sampled_fps == pytest.approx(len(indices) / (total / native))
    assert len(indices) == 1 or sampled_fps <= fps * (1 + 1e-6)


@pytest.mark.parametrize(
    ("total", "native", "fps", "most", "indices", "sampled"),
    [
        (8, 4.0, 2.0, 32, [0, 2, 4, 6], 2.0),
        (8, 4.0, 2.0, 3, [0, 2, 5], 1.5),  # the frame limit binds: what is kept lies further apart
        (4, 1.0, 2.0, 32, [0, 1, 2, 3], 1.0),  # slower than asked for: every frame, at its own rate
        (3, 30.0, 2.0, 32, [0], 10.0),
        (128, 25.0, 2.0, 32, [128 * i // 10 for i in range(10)], 10 / 5.12),
    ],
)
def test_sample_frames_examples(
    total: int, native: float, fps: float, most: int, indices: list[int], sampled: float
) -> None:
    taken, rate = sample_frames(total, native, VideoBudget(fps=fps, max_frames=most))
    assert taken == indices
    assert rate == pytest.approx(sampled)


@pytest.mark.parametrize(
    ("name", "codec", "encoder"),
    [
        ("a.mp4", "libx264", {"g": "10", "bf": "2", "crf": "5"}),  # a keyframe every ten: the reader jumps
        ("a.mp4", "libx264", {"g": "250", "bf": "3", "crf": "5"}),
        ("a.mkv", "libx264", {"g": "7", "crf": "5"}),
        ("a.avi", "mpeg4", {"g": "10", "qmin": "1", "qmax": "1"}),
        ("a.webm", "libvpx-vp9", {"g": "10", "crf": "5", "b": "0"}),
    ],
)
@pytest.mark.parametrize("fps", [0.5, 2.0, 12.0])
def test_the_frames_that_come_are_the_frames_that_were_asked_for(
    video: Video, name: str, codec: str, encoder: dict[str, str], fps: float
) -> None:
    path = video(name, numbered(60), fps=12, codec=codec, encoder=encoder)
    budget = VideoBudget(fps=fps, max_frames=60, max_pixels_per_frame=56 * 84)
    frames = read_media(MediaFile("video", str(path)), budget, RULES)
    expected, sampled_fps = sample_frames(60, 12.0, budget)
    assert [round(float(frame.mean()) / 4) for frame in frames.pixels] == expected
    assert frames.pixels.shape == (len(expected), 56, 84, 3)
    assert frames.seconds_per_grid == pytest.approx(2 / sampled_fps)


def test_frame_rates_that_are_no_whole_number_keep_their_timing(video: Video) -> None:
    path = video("ntsc.mp4", numbered(30), fps=Fraction(30000, 1001))
    frames = read_media(MediaFile("video", str(path)), VideoBudget(fps=2), RULES)
    assert len(frames.pixels) == 2
    assert frames.seconds_per_grid == pytest.approx(30 * 1001 / 30000)


def test_the_same_frames_at_two_rates_have_other_positions_in_time(video: Video) -> None:
    positions = []
    for rate in (2, 1):
        path = video(f"{rate}.mp4", numbered(4), fps=rate)
        frames = read_media(MediaFile("video", str(path)), VideoBudget(fps=2, max_pixels_per_frame=56 * 56), RULES)
        assert frames.grid(RULES)[0] == 2
        assert frames.seconds_per_grid == 2 / rate
        media = Media("video", torch.from_numpy(frames.patches(RULES)), frames.grid(RULES), frames.seconds_per_grid)
        positions.append(rope_positions(3 + media.tokens(2), [media], [(2,)], merge=2, tokens_per_second=2))
    tokens = (positions[0].shape[1] - 3) // 2  # of one temporal row
    assert positions[0][0].tolist()[2:-1] == [2] * tokens + [4] * tokens
    assert positions[1][0].tolist()[2:-1] == [2] * tokens + [6] * tokens
    assert torch.equal(positions[0][1:, :-1], positions[1][1:, :-1])


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_short_videos_of_any_length_decode(video: Video, count: int) -> None:
    path = video("short.mp4", numbered(count))
    frames = read_media(MediaFile("video", str(path)), VideoBudget(fps=4), RULES)
    assert len(frames.pixels) == count
    assert len(frames.patches(RULES)) == np.prod(frames.grid(RULES))


def test_frames_are_resized_into_the_pixel_budget(video: Video) -> None:
    path = video("large.mp4", numbered(4, 240, 320))
    frames = read_media(MediaFile("video", str(path)), VideoBudget(fps=4, max_pixels_per_frame=20_000), RULES)
    assert frames.pixels.shape == (4, 112, 140, 3)
    tiny = read_media(MediaFile("video", str(video("tiny.mp4", numbered(2, 16, 16)))), VideoBudget(), PixelRules())
    assert tiny.pixels.shape[1:] == (56, 56, 3)


def cut(path: Path, keep: float) -> Path:
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])
    return path


def noise(count: int) -> list[np.ndarray[Any, np.dtype[np.uint8]]]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (56, 84, 3), dtype=np.uint8) for _ in range(count)]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda video, folder: folder / "none.mp4", "missing"),
        (lambda video, folder: cut(video("a.mp4", noise(20)), 0.5), "unreadable"),  # the index stands at the end
        (
            lambda video, folder: cut(video("a.mp4", noise(20), container={"movflags": "faststart"}), 0.5),
            "truncated",  # the index promises frames that are not there
        ),
        (lambda video, folder: write(folder / "a.mp4", b""), "unreadable"),
        (lambda video, folder: write(folder / "a.mp4", b"no video at all" * 100), "unreadable"),
        (lambda video, folder: write_image(folder / "a.mp4", (60, 60), "PNG"), None),  # one frame: a still
        (lambda video, folder: video("a.mp4", numbered(2, 16, 3216)), "aspect_ratio"),
        (lambda video, folder: folder, "unreadable"),
    ],
)
def test_videos_that_cannot_be_used_say_why(
    video: Video, tmp_path: Path, make: Callable[[Video, Path], Path], reason: str | None
) -> None:
    path = make(video, tmp_path)
    if reason is None:
        assert len(read_media(MediaFile("video", str(path)), VideoBudget(), RULES).pixels) == 1
        return
    with pytest.raises(MediaError) as caught:
        read_media(MediaFile("video", str(path)), VideoBudget(fps=4), RULES)
    assert (caught.value.reason, caught.value.path) == (reason, str(path))
    assert "\n" not in str(caught.value)


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def write_image(path: Path, size: tuple[int, int], form: str, mode: str = "RGB") -> Path:
    Image.new(mode, size, 0 if mode in ("L", "P", "I;16") else None).save(path, form)
    return path


@pytest.mark.parametrize(
    ("size", "expected"), [((26, 28), (84, 56)), ((27, 332), (336, 28)), ((1, 300), None), ((8192, 30), None)]
)
def test_images_are_enlarged_or_refused(
    tmp_path: Path, size: tuple[int, int], expected: tuple[int, int] | None
) -> None:
    path = str(write_image(tmp_path / "a.png", size, "PNG"))
    if expected is None:
        with pytest.raises(MediaError, match="aspect_ratio"):
            read_media(MediaFile("image", path), VideoBudget(), RULES)
    else:
        frames = read_media(MediaFile("image", path), VideoBudget(), RULES)
        assert frames.pixels.shape == (1, *expected, 3)
        assert frames.seconds_per_grid == 0.0
        assert frames.grid(RULES)[0] == 1


@pytest.mark.parametrize(
    ("mode", "form"), [("L", "PNG"), ("P", "PNG"), ("RGBA", "PNG"), ("CMYK", "JPEG"), ("1", "PNG")]
)
def test_images_of_every_mode_become_rgb(tmp_path: Path, mode: str, form: str) -> None:
    path = write_image(tmp_path / "a.png", (56, 56), form, mode)
    assert read_media(MediaFile("image", str(path)), VideoBudget(), RULES).pixels.shape == (1, 56, 56, 3)


def test_images_stand_as_their_camera_says(tmp_path: Path) -> None:
    image = Image.new("RGB", (84, 56))
    exif = image.getexif()
    exif[0x0112] = 6  # turned by 90 degrees
    image.save(tmp_path / "a.jpg", exif=exif)
    assert read_media(MediaFile("image", str(tmp_path / "a.jpg")), VideoBudget(), RULES).pixels.shape == (1, 84, 56, 3)


def test_images_keep_to_the_jobs_pixel_limit(tmp_path: Path) -> None:
    path = str(write_image(tmp_path / "a.png", (560, 560), "PNG"))
    frames = read_media(MediaFile("image", path), VideoBudget(max_pixels_per_frame=112 * 112), RULES)
    assert frames.pixels.shape == (1, 112, 112, 3)


def test_a_broken_image_is_unreadable(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, (80, 80, 3), dtype=np.uint8)).save(tmp_path / "a.png")
    with pytest.raises(MediaError, match="unreadable"):
        read_media(MediaFile("image", str(cut(tmp_path / "a.png", 0.5))), VideoBudget(), RULES)
