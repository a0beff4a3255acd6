"""Programs are unpacked only from an archive that is what was published."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.cluster.kube_assets import Archive, AssetError, archives, fetch


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    root = tmp_path / "site"
    root.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(root)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield root, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def make_archive(root: Path) -> str:
    with tarfile.open(root / "kit.tar.gz", "w:gz") as made:
        for name, content in (("kit/bin/tool", b"#!/bin/true\n"), ("kit/README", b"hello")):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            made.addfile(entry, io.BytesIO(content))
    return hashlib.sha256((root / "kit.tar.gz").read_bytes()).hexdigest()


@pytest.mark.parametrize("form", ["{}\n", "{}  kit.tar.gz\n", "0000  other.tar.gz\n{} *kit.tar.gz\n"])
def test_assets_are_unpacked_where_the_sum_is_right(site: tuple[Path, str], tmp_path: Path, form: str) -> None:
    root, url = site
    (root / "sums").write_text(form.format(make_archive(root)))
    fetch(Archive(f"{url}/kit.tar.gz", f"{url}/sums", ("tool",)), tmp_path)
    assert (tmp_path / "tool").read_bytes() == b"#!/bin/true\n"
    assert (tmp_path / "tool").stat().st_mode & 0o111
    assert {path.name for path in tmp_path.iterdir()} == {"tool", "site"}


@pytest.mark.parametrize(
    ("sums", "program", "message"),
    [
        ("1234  kit.tar.gz", "tool", "published is 1234; it was not unpacked"),
        ("1234  other.tar.gz", "tool", "publishes no SHA-256 of kit.tar.gz"),
        (None, "tool", "/sums: 404 File not found"),
        ("right", "missing", "holds no missing"),
    ],
)
def test_assets_are_refused(
    site: tuple[Path, str], tmp_path: Path, sums: str | None, program: str, message: str
) -> None:
    root, url = site
    digest = make_archive(root)
    if sums is not None:
        (root / "sums").write_text(digest if sums == "right" else sums)
    with pytest.raises(AssetError, match=message):
        fetch(Archive(f"{url}/kit.tar.gz", f"{url}/sums", (program,)), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"site"}


def test_assets_cover_the_control_plane() -> None:
    wanted = {program for archive in archives("amd64") for program in archive.programs}
    assert wanted == {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "helm"}
