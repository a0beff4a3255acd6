"""A whole training run with its engine does not grow: 60 live steps with 10 MB of pixels in each."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import yaml

from tests.engine.train.conftest import read_run
from tests.memory import growth

STEPS, WARM_UP = 60, 10

# A process of its own: what other tests left behind would hide a leak by being reused. The engine is the real one and
# only looked at: its caches of prompts, media and requests are what may grow.
SCRIPT = """
import json
from pathlib import Path
from rollplex.environment import set_defaults

set_defaults()
from rollplex.api.load import load_job
from rollplex.rollout.engine import RolloutEngine
from rollplex.train import train
from tests.memory import resident_mb

resident, pixels = [], []
publish, submit = RolloutEngine.publish, RolloutEngine.submit


def watched_publish(self):
    resident.append(resident_mb())
    return publish(self)


def watched_submit(self, step, prompts, *rest):
    pixels.append(sum(media.patches.numel() for prompt in prompts for media in prompt.media))
    return submit(self, step, prompts, *rest)


RolloutEngine.publish, RolloutEngine.submit = watched_publish, watched_submit
train(load_job(Path("job.yaml"), context="train", ranks=1), "memory")
Path("memory.json").write_text(json.dumps({"resident": resident, "pixels": pixels}))
"""


SPREAD = """
import zlib

def spread(response, answer, row):
    return zlib.crc32(response.encode()) % 8 / 8
"""


def write_videos(folder: Path, count: int) -> None:
    rows = []
    for number in range(count):
        noise = np.random.default_rng(number).integers(0, 256, (8, 42, 42, 3), dtype=np.uint8)
        with av.open(str(folder / f"{number}.mp4"), "w") as file:
            stream = file.add_stream("libx264", rate=8)
            stream.width = stream.height = 336
            stream.pix_fmt = "yuv420p"
            for frame in noise.repeat(8, axis=1).repeat(8, axis=2):
                file.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
            file.mux(stream.encode())
        content = [{"type": "video", "video": f"{number}.mp4"}, {"type": "text", "text": "What colour?"}]
        rows.append({"messages": [{"role": "user", "content": content}], "answer": "red"})
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_memory_of_a_run_does_not_grow(document: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    write_videos(tmp_path, 16)
    (tmp_path / "spread.py").write_text(SPREAD)
    job = document(
        data={
            "train": "rows.jsonl",
            "maxPromptTokens": 2000,
            "video": {"fps": 8, "maxFrames": 8, "maxPixelsPerFrame": 336 * 336},
        },
        training={"promptsPerStep": 4, "steps": STEPS, "seed": 5},
        reward=[{"python": "spread.py:spread"}],
        algorithm={"groupSize": 2, "kl": {"coefficient": 0.01}},  # so that no group is left out
        evaluation=None,
    )
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {root!r})\n{SCRIPT}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads((tmp_path / "memory.json").read_text())
    rows = read_run(tmp_path / "runs/memory", "").rows
    assert len(rows) == len(found["pixels"]) == STEPS
    assert all(row["groups/skipped"] == 0 for row in rows)
    assert all(row["grad/norm"] > 0 for row in rows[1:])
    assert min(found["pixels"]) >= 10e6  # of a byte each in the video, of four as the model reads them
    assert growth(found["resident"][WARM_UP:]) < 1.0, found["resident"]
