"""Where Kubernetes' own programs are: KUBEBUILDER_ASSETS, this checkout's .kube-assets, PATH, then ../shared/kube."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
UNPACKED = REPOSITORY / ".kube-assets"
SHARED = REPOSITORY.parent / "shared" / "kube"
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
WAY_OUT = (
    "run `make kube-assets` (it downloads the release archives of Kubernetes, etcd and Helm into .kube-assets), or let "
    "KUBEBUILDER_ASSETS name a folder that has them"
)


def find(name: str) -> Path:
    """Path of a program; fails the test, in one line, where it is nowhere.

    The programs of a control plane come from one place, so that their versions go together.
    """
    found = _find(name)
    if found is None:
        pytest.fail(f"cluster tests need {name}, which is not in {_looked()}: {_way_out(name)}", pytrace=False)
    return found


@cache
def _find(name: str) -> Path | None:
    wanted = CONTROL_PLANE if name in CONTROL_PLANE else (name,)
    if folder := os.environ.get("KUBEBUILDER_ASSETS"):
        return _in_folder(Path(folder), name, (name,))
    if found := _in_folder(UNPACKED, name, wanted):
        return found
    if all(shutil.which(each) for each in wanted):
        return Path(shutil.which(name) or "")
    if (SHARED / "unpack.sh").exists():
        subprocess.run([SHARED / "unpack.sh", UNPACKED], check=True)
        return _in_folder(UNPACKED, name, (name,))
    return None


def _in_folder(folder: Path, name: str, wanted: tuple[str, ...]) -> Path | None:
    return folder / name if all(os.access(folder / each, os.X_OK) for each in wanted) else None


def _looked() -> str:
    if folder := os.environ.get("KUBEBUILDER_ASSETS"):
        return f"KUBEBUILDER_ASSETS={folder}"
    return f"{UNPACKED.name}, nor with the rest of the control plane on PATH"


def _way_out(name: str) -> str:
    if name == "kueue":
        return (
            "Kueue 0.17.0 is released only as an image; copy the file /manager out of it to .kube-assets/kueue, or to "
            "kueue in KUBEBUILDER_ASSETS"
        )
    return WAY_OUT
