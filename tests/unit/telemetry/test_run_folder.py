import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rollplex.telemetry.events import Event, StepTimeline, read_timelines
from rollplex.telemetry.run import TRACE_EVERY_STEPS, RunFolder, refuse_running


def timeline_of(step: int) -> StepTimeline:
    events = (
        Event("decode", "decode", "", step + 0.0, step + 0.5, tokens=4, batch=4),
        Event("compute", "actor_prefix", "g0", step + 0.25, step + 0.75, tokens=100),
    )
    return StepTimeline(step, float(step), step + 1.0, events)


def silent(line: str) -> None:
    raise AssertionError(f"said without cause: {line}")


def test_run_folder_holds_everything_the_page_names(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "demo", "kind: RollplexJob\n", say=silent) as run:
        for step in (1, 2, 3, 4):
            written = run.write_step({"reward/mean": 0.25 * step, "step": step, "loss": 1}, timeline_of(step))
            assert written == {"step": step, "reward/mean": 0.25 * step, "loss": 1}
    assert run.rollouts.is_dir()
    assert (run.path / "job.yaml").read_text() == "kind: RollplexJob\n"
    rows = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert [(row["step"], row["reward/mean"]) for row in rows] == [(1, 0.25), (2, 0.5), (3, 0.75), (4, 1.0)]
    assert list(read_timelines(run.path / "timeline.jsonl")) == [timeline_of(step) for step in (1, 2, 3, 4)]
    shown = json.loads((run.path / "trace.json").read_text())["traceEvents"]
    assert [event["name"] for event in shown if event.get("cat") == "step"] == ["step 2", "step 3", "step 4"]
    assert (run.path / "lanes.png").read_bytes().startswith(b"\x89PNG")
    scalars = EventAccumulator(str(run.path / "tensorboard"))
    scalars.Reload()
    assert [(point.step, point.value) for point in scalars.Scalars("reward/mean")] == [
        (1, 0.25),
        (2, 0.5),
        (3, 0.75),
        (4, 1.0),
    ]


def test_run_folder_without_tensorboard_has_no_events(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "demo", "", tensorboard=False, say=silent) as run:
        pass
    assert sorted(path.name for path in run.path.iterdir()) == [
        ".lock",
        "job.yaml",
        "metrics.jsonl",
        "rollouts",
        "timeline.jsonl",
    ]


def test_run_folder_is_readable_while_the_run_goes_on(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "demo", "", tensorboard=False, say=silent)
    for step in range(1, TRACE_EVERY_STEPS + 1):
        assert not (run.path / "trace.json").exists()
        run.write_step({"step": step}, timeline_of(step))
        assert len((run.path / "metrics.jsonl").read_text().splitlines()) == step
        assert len((run.path / "timeline.jsonl").read_text().splitlines()) == step
    assert json.loads((run.path / "trace.json").read_text())
    run.close()


def test_run_folder_adds_what_was_measured_later_to_the_last_row(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "demo", "", say=silent) as run:
        run.write_step({"step": 1, "loss": float("nan")}, timeline_of(1))
        run.write_step({"step": 2, "loss": float("nan")}, timeline_of(2))
    with RunFolder.resume(tmp_path / "demo", "", 2) as run:
        with pytest.raises(ValueError, match="not documented"):
            run.complete_step(2, {"nonsense": 1.0})
        run.complete_step(2, {"eval/reward/mean": 0.5})
        run.write_step({"step": 3}, timeline_of(3))
    rows = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert rows == [{"step": 1, "loss": None}, {"step": 2, "loss": None, "eval/reward/mean": 0.5}, {"step": 3}]
    assert not (run.path / "metrics.jsonl.part").exists()
    scalars = EventAccumulator(str(run.path / "tensorboard"))
    scalars.Reload()
    assert [(point.step, point.value) for point in scalars.Scalars("eval/reward/mean")] == [(2, 0.5)]


def test_run_folder_on_a_full_disk_closes_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    run = RunFolder.create(tmp_path / "demo", "", tensorboard=False, say=silent)
    run.write_step({"step": 1}, timeline_of(1))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        run.close()
    assert f"{tmp_path / 'demo'}: not all could be written at the end: No space left on device" in caplog.text


def test_run_folder_refuses_a_bad_row_before_writing_anything(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "demo", "", tensorboard=False, say=silent) as run:
        with pytest.raises(ValueError, match="not documented"):
            run.write_step({"step": 1, "nonsense": 1.0}, timeline_of(1))
        with pytest.raises(ValueError, match="metrics are of step 2, the timeline of step 1"):
            run.write_step({"step": 2}, timeline_of(1))
        assert (run.path / "metrics.jsonl").read_text() == (run.path / "timeline.jsonl").read_text() == ""


def test_run_folder_moves_an_earlier_run_aside_and_says_so(tmp_path: Path) -> None:
    said: list[str] = []
    for text in ("first", "second", "third"):
        RunFolder.create(tmp_path / "demo", text, tensorboard=False, say=said.append).close()
    assert {path.name: (path / "job.yaml").read_text() for path in tmp_path.iterdir()} == {
        "demo.old-1": "first",
        "demo.old-2": "second",
        "demo": "third",
    }
    assert said == [
        f"{tmp_path}/demo holds an earlier run: moved aside to {tmp_path}/demo.old-1",
        f"{tmp_path}/demo holds an earlier run: moved aside to {tmp_path}/demo.old-2",
    ]


def test_run_folder_takes_an_empty_folder_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    RunFolder.create(tmp_path / "demo", "", tensorboard=False, say=silent).close()
    assert [path.name for path in tmp_path.iterdir()] == ["demo"]


def test_run_folder_of_a_live_trainer_is_refused_and_free_once_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from rollplex.telemetry.run import RunFolder\n"
        f"run = RunFolder.create(Path({str(tmp_path)!r}) / 'demo', 'live', tensorboard=False, say=print)\n"
        "sys.stdout.write('ready\\n'); sys.stdout.flush(); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as trainer:
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == "ready\n"
        for open_it in (
            lambda: RunFolder.create(tmp_path / "demo", "", tensorboard=False, say=silent),
            lambda: RunFolder.resume(tmp_path / "demo", "", 1, tensorboard=False),
            lambda: refuse_running(tmp_path / "demo"),
        ):
            with pytest.raises(ValueError, match=r"demo belongs to a run that is still going: .* --name"):
                open_it()
        os.kill(trainer.pid, signal.SIGKILL)
    said: list[str] = []
    RunFolder.create(tmp_path / "demo", "", tensorboard=False, say=said.append).close()
    assert len(said) == 1
    assert (tmp_path / "demo.old-1" / "job.yaml").read_text() == "live"


def write(run: RunFolder, *steps: int) -> None:
    for step in steps:
        run.write_step({"step": step, "reward/mean": step / 10}, timeline_of(step))
        (run.rollouts / f"step-{step:06d}.jsonl").write_text(f"{step}\n")
        run.nonfinite.mkdir(exist_ok=True)
        (run.nonfinite / f"step-{step:06d}.jsonl").write_text(f"{step}\n")


def test_resumed_folder_forgets_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "demo", "first", say=silent) as run:
        write(run, 1, 2, 3, 4)
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "rew')  # killed while writing
    with RunFolder.resume(run.path, "second", 2) as again:
        write(again, 3)
    assert (run.path / "job.yaml").read_text() == "second"
    rows = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert [timeline.step for timeline in read_timelines(run.path / "timeline.jsonl")] == [1, 2, 3]
    for folder in (run.rollouts, run.nonfinite):
        assert sorted(path.name for path in folder.iterdir()) == [f"step-{step:06d}.jsonl" for step in (1, 2, 3)]
    scalars = EventAccumulator(str(run.path / "tensorboard"))
    scalars.Reload()
    assert [point.step for point in scalars.Scalars("reward/mean")] == [1, 2, 3]


def test_resumed_folder_may_have_lost_its_files(tmp_path: Path) -> None:
    with RunFolder.resume(tmp_path / "demo", "", 7, tensorboard=False) as run:
        write(run, 8)
    assert len((run.path / "metrics.jsonl").read_text().splitlines()) == 1


def test_checkpoints_elsewhere_move_aside_with_their_run(tmp_path: Path) -> None:
    said: list[str] = []
    for step in (1, 2):
        folder = RunFolder.create(tmp_path / "run", str(step), tensorboard=False, checkpoints=tmp_path, say=said.append)
        folder.close()
        (tmp_path / f"step-{step:06d}").mkdir()
        (tmp_path / "mine").mkdir(exist_ok=True)
    assert len(said) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "run", "run.old-1", "step-000002"]
    assert (tmp_path / "run.old-1/checkpoints/step-000001").is_dir()
    assert (tmp_path / "run.old-1/job.yaml").read_text() == "1"


def test_read_timelines_leaves_out_a_line_that_a_crash_cut(tmp_path: Path) -> None:
    path = tmp_path / "timeline.jsonl"
    path.write_text(timeline_of(1).to_json() + "\n" + timeline_of(2).to_json()[:40])
    assert list(read_timelines(path)) == [timeline_of(1)]
