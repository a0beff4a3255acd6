"""One tiny model folder and one shapes set for all data tests, and small files to decode."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from rollplex.data import shapes, tiny_model
from rollplex.environment import prepare
from tests.unit.data.files import Video

prepare()


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tiny_model.make(folder, seed=1)
    return folder


@pytest.fixture(scope="session")
def shapes_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shapes")
    shapes.render(folder, 30, list(shapes.QUESTIONS), seed=3)
    return folder


@pytest.fixture
def video(tmp_path: Path) -> Video:
    """Writes a video file of given frames; options go to the encoder or the container."""

    def write(
        name: str,
        frames: Sequence[np.ndarray[Any, np.dtype[np.uint8]]],
        fps: int | Fraction = 4,
        codec: str = "libx264",
        encoder: dict[str, str] | None = None,
        container: dict[str, str] | None = None,
    ) -> Path:
        path = tmp_path / name
        height, width, _ = frames[0].shape
        with av.open(str(path), "w", container_options=container or {}) as file:
            stream = file.add_stream(codec, rate=fps, options=encoder or {})
            stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
            for pixels in frames:
                file.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
            file.mux(stream.encode())
        return path

    return write
