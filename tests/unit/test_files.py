"""Whether a folder takes files, found out before anything is started for it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rollplex.api.errors import JobError
from rollplex.checkpoint.place import Place
from rollplex.files import reason, refuse_unwritable
from rollplex.resume import refuse_unwritable as refuse_unwritable_place


def test_a_folder_that_takes_files_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for folder in (tmp_path / "there", tmp_path / "not/yet/there"):
        refuse_unwritable(folder)
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


def test_a_file_in_the_way_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file/run/checkpoints"):
        with pytest.raises(NotADirectoryError):
            refuse_unwritable(folder)


def test_a_file_system_that_makes_no_folder_is_an_error() -> None:
    with pytest.raises(OSError, match=r"proc"):
        refuse_unwritable(Path("/proc/rollplex/run"))


def full(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_an_error_and_nothing_of_the_try_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "write", full)  # folders are made, and then nothing fits into them
    with pytest.raises(OSError, match=r"No space left"):
        refuse_unwritable(tmp_path / "runs/demo")
    assert list(tmp_path.iterdir()) == []


def test_the_reason_gives_bytes_where_room_is_what_lacks(tmp_path: Path) -> None:
    assert reason(PermissionError(errno.EACCES, "Permission denied", "x"), tmp_path, 5) == "Permission denied"
    said = reason(OSError(errno.ENOSPC, "No space left on device"), tmp_path / "not/there", 12345)
    assert said.startswith("No space left on device; 12,345 bytes are needed, ")
    assert said.endswith(" bytes are free")
    assert reason(OSError(errno.EDQUOT, "Disk quota exceeded"), tmp_path).startswith("Disk quota exceeded; ")
    assert reason(OSError("odd"), tmp_path) == "odd"


def test_a_run_that_cannot_be_written_is_one_line_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refuse_unwritable_place(Place(tmp_path / "run", tmp_path / "run/checkpoints"))
    assert not (tmp_path / "run").exists()
    with pytest.raises(JobError) as caught:
        refuse_unwritable_place(Place(tmp_path / "run", tmp_path / "file/checkpoints"))
    [fault] = caught.value.faults
    assert fault.path == "spec.checkpoint.path"
    assert fault.message.startswith(f"{tmp_path / 'file/checkpoints'} cannot be written: Not a directory; make room ")
    assert "checkpoint.path name another folder" in fault.message
