"""Live rollouts, saved and fed back."""

from __future__ import annotations

from pathlib import Path

from rollplex.rollout.protocol import Rollout, Sampling
from rollplex.rollout.replay import ReplayEngine, read_rollouts, save_rollouts
from tests.engine.conftest import Rig
from tests.engine.tiny import medium, prompt, text


def test_replay_repeats_a_live_step(rig: Rig, tmp_path: Path) -> None:
    video = medium("video", (4, 8, 8), 3, rig.shape, seconds=0.5)
    prompts = [prompt("text", rig.shape, [text(9, 1)]), prompt("video", rig.shape, [video, text(5, 2)])]
    sampling = Sampling(limits=((3, 9), (5, 1)))

    def sample(rollout: Rollout) -> list[list[tuple[int, int]]]:
        rollout.submit(2, prompts, 2, sampling)
        order = []
        while rollout.unfinished:
            done = rollout.step()
            responses.extend(done)
            order.append([(r.prompt, r.sample) for r in done])
        return order

    responses: list = []  # type: ignore[type-arg]
    live_order = sample(rig.engine)
    live = list(responses)
    save_rollouts(tmp_path, 2, prompts, live)
    replay = ReplayEngine(read_rollouts(tmp_path))
    replay.publish()
    responses.clear()
    assert sample(replay) == live_order
    assert responses == live
