"""A run's memory does not grow with its steps: 10 MB of pixels in each, decoded or from the cache."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.memory import growth
from tests.unit.data.files import Video

WARM_UP = 5  # steps in which allocators and decoders find their size

# A process of its own: what other tests left behind would hide a leak by being reused.
SCRIPT = '''
import json, sys
from rollplex.api.data import CacheSpec, DataSpec, VideoSpec
from rollplex.data.dataset import read_rows
from rollplex.data.loader import Loader
from rollplex.data.reader import Reader
from tests.memory import resident_mb

model, rows, cache, max_bytes, steps = sys.argv[1:]
data = DataSpec(train=rows, video=VideoSpec(fps=8, max_frames=8, max_pixels_per_frame=336 * 336),
                cache=CacheSpec(path=cache, max_bytes=max_bytes), workers=2)
reader = Reader(model, data)
loader = Loader(reader, read_rows(rows, "spec.data.train"), prompts_per_step=4, seed=1)


def held_mb(prompts):
    """What is rightly held: this batch and, once it is decoded, the next; rows in flight may share their media."""
    ahead = [decoding._future.result()[1] for pending in loader._window for decoding in pending._decoding]
    now = [media.patches.numpy() for prompt in prompts for media in prompt.media]
    return sum({array.ctypes.data: array.nbytes for array in [*ahead, *now]}.values()) / 1e6


resident, pixels = [], 0
for step in range(1, int(steps) + 1):
    prompts = loader.batch(step).prompts
    pixels = sum(media.patches.numel() for prompt in prompts for media in prompt.media)
    assert all(len(prompt.key) == 32 for prompt in prompts)
    held = held_mb(prompts)  # first: it waits for the workers
    resident.append(resident_mb() - held)
print(json.dumps({"resident": resident, "pixels": pixels, **loader.metrics()}))
reader.close()
'''


@pytest.fixture
def videos(video: Video, tmp_path: Path) -> Path:
    """Eight videos of 8 frames, 336 x 336, and a question about each."""
    rows = []
    for number in range(8):
        noise = np.random.default_rng(number).integers(0, 256, (8, 42, 42, 3), dtype=np.uint8)
        video(f"{number}.mp4", list(noise.repeat(8, axis=1).repeat(8, axis=2)), fps=8)
        content = [{"type": "video", "video": f"{number}.mp4"}, {"type": "text", "text": "What?"}]
        rows.append({"messages": [{"role": "user", "content": content}], "answer": "x"})
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "rows.jsonl"


@pytest.mark.long  # over fewer steps the allocators' own ups and downs are as large as what is looked for
@pytest.mark.parametrize("max_bytes", ["1Gi", "4M"], ids=["cached", "decoded"])
def test_memory_does_not_grow_with_the_steps(model_folder: Path, videos: Path, tmp_path: Path, max_bytes: str) -> None:
    steps = 60
    arguments = [str(model_folder), str(videos), str(tmp_path / "cache"), max_bytes, str(steps)]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["pixels"] >= 10e6
    if max_bytes == "1Gi":
        assert found["data/cache_misses"] == 8
        assert found["data/cache_hits"] > 2 * steps  # rows in flight together share a medium
    else:  # room for one entry: nearly everything is decoded, stored and thrown out again
        assert found["data/cache_misses"] > 3 * steps
    assert growth(found["resident"][WARM_UP:]) < 1.0, found["resident"]
