"""The kit itself: a control plane that nothing outlives, and programs that are found or asked for in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import programs
from tests.cluster.client import Client
from tests.cluster.control_plane import ControlPlane
from tests.cluster.processes import wait_for

START_AND_SLEEP = """
import sys, time
from pathlib import Path
from tests.cluster.control_plane import ControlPlane
with ControlPlane(Path(sys.argv[1])) as plane:
    print(*(program.process.pid for program in plane.programs.values()), flush=True)
    time.sleep(600)
"""


def test_control_plane_dies_with_a_killed_test(tmp_path: Path) -> None:
    command = [sys.executable, "-c", START_AND_SLEEP, str(tmp_path)]
    with subprocess.Popen(command, cwd=programs.REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pids = [int(pid) for pid in process.stdout.readline().split()]
        assert len(pids) == 4
        process.kill()
    wait_for("all four ended", lambda: not any(map(_runs, pids)), 5.0)


def test_control_plane_records_who_wrote_what(plane: ControlPlane, client: Client) -> None:
    as_operator = plane.client("operator-31", client.namespace)
    as_operator.create("configmaps", {"metadata": {"name": "mine"}})
    as_operator.list("configmaps")

    def verbs() -> list[str]:
        return [f"{write['verb']} {write['objectRef']['resource']}" for write in plane.writes("operator-31")]

    wait_for("the write is recorded", verbs, 5.0)
    assert verbs() == ["create configmaps"]


def test_control_plane_says_in_one_line_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    programs._find.cache_clear()
    try:
        with pytest.raises(
            pytest.fail.Exception, match=r"^cluster tests need etcd, .*run `make kube-assets`"
        ) as failure:
            programs.find("etcd")
        assert "\n" not in str(failure.value)
    finally:
        programs._find.cache_clear()


def _runs(pid: int) -> bool:
    """Whether it does, rather than waiting for somebody to ask how it ended."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return False
