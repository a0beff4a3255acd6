"""Weights & Biases, offline, with the real package: what ``wandb sync`` would send."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rollplex.api.errors import JobError
from rollplex.api.output import TrackingSpec, WandbSpec
from rollplex.telemetry.events import StepTimeline
from rollplex.telemetry.run import RunFolder
from rollplex.telemetry.tracker import refuse_missing

OFFLINE = WandbSpec(project="films", mode="offline")
JOB = "metadata: {name: small}\nspec: {training: {steps: 3}}\n"


def records(file: Path) -> Iterator[Any]:
    """The records of an offline run: LevelDB's log format (7 bytes of head, then blocks of 32 KiB)."""
    import wandb
    from wandb.proto.wandb_internal_pb2 import Record

    wandb.teardown()  # as at the end of a process: its writer has then written everything
    data, at, whole = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        room = 32768 - at % 32768
        if room < 7:
            at += room
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a record in one piece, or its last one
            record = Record()
            record.ParseFromString(whole)
            whole = b""
            yield record


def write(folder: RunFolder, step: int, metrics: Mapping[str, float | str]) -> None:
    folder.write_step({"step": step, **metrics}, StepTimeline(step, 0.0, 1.0, ()))


def test_offline_run_holds_every_row_and_resumes_under_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))  # a key or settings of whoever runs the test play no part
    path = tmp_path / "demo"
    with RunFolder.create(path, JOB, tensorboard=False, wandb=OFFLINE, say=print) as run:
        write(run, 1, {"reward/mean": 0.25, "schedule/mode": "serial"})
        write(run, 2, {"reward/mean": 0.5, "eval/pass@1": 0.75})
    with RunFolder.resume(path, JOB, 2, tensorboard=False, wandb=OFFLINE) as run:
        write(run, 3, {"reward/mean": float("nan")})
    files = sorted(path.glob("wandb/offline-run-*/*.wandb"), key=lambda file: file.stat().st_mtime_ns)
    assert len(files) == 2
    first, second = (list(records(file)) for file in files)
    (head,) = [record.run for record in first if record.HasField("run")]
    assert (head.project, head.display_name) == ("films", "demo")
    config = {update.key: json.loads(update.value_json) for update in head.config.update}
    assert config["spec"] == {"training": {"steps": 3}}
    assert {record.run.run_id for record in first + second if record.HasField("run")} == {
        (path / "wandb/run-id").read_text()
    }
    rows = [
        {
            item.nested_key[0] if item.nested_key else item.key: json.loads(item.value_json)
            for item in record.history.item
        }
        for record in first + second
        if record.HasField("history")
    ]
    ours = [{key: value for key, value in row.items() if not key.startswith("_")} for row in rows]
    assert ours[:2] == [
        {"step": 1, "reward/mean": 0.25, "schedule/mode": "serial"},
        {"step": 2, "reward/mean": 0.5, "eval/pass@1": 0.75},
    ]
    assert ours[2]["step"] == 3
    assert ours[2]["reward/mean"] != ours[2]["reward/mean"]  # not a number
    assert capfd.readouterr() == ("", "")


def test_run_beside_its_checkpoints_is_called_after_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    path = tmp_path / "clevrer" / "run"
    with RunFolder.create(path, JOB, tensorboard=False, wandb=OFFLINE, say=print):
        pass
    (file,) = path.glob("wandb/offline-run-*/*.wandb")
    (name,) = [record.run.display_name for record in records(file) if record.HasField("run")]
    assert name == "clevrer"


def test_online_run_without_a_key_is_one_fault_of_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("WANDB_API_KEY", "WANDB_MODE", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")  # nobody is to be asked
    with pytest.raises(JobError, match=r"^spec.tracking.wandb: .*; set WANDB_API_KEY, or use mode: offline$"):
        RunFolder.create(tmp_path / "demo", JOB, tensorboard=False, wandb=WandbSpec(project="p"), say=print)


def test_missing_package_is_a_fault_before_anything_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    refuse_missing(TrackingSpec(wandb=OFFLINE))
    (tmp_path / "wandb").mkdir()  # a folder that looks like a package without being one
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    for name in [name for name in sys.modules if name.partition(".")[0] == "wandb"]:
        monkeypatch.delitem(sys.modules, name)
    refuse_missing(TrackingSpec())
    with pytest.raises(JobError, match=r"^spec.tracking.wandb: the package wandb is not installed: pip install 'wandb"):
        refuse_missing(TrackingSpec(wandb=OFFLINE))
