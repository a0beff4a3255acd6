"""``make kube-assets``: Kubernetes' own programs for the cluster tests, each archive against its published SHA-256."""

from __future__ import annotations

import argparse
import hashlib
import platform
import shutil
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path, PurePosixPath

KUBERNETES, ETCD, HELM = "v1.37.2", "v3.7.3", "v4.3.2"
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


class AssetError(Exception):
    """An archive could not be had, or is not what was published."""


@dataclass(frozen=True, slots=True)
class Archive:
    """A release archive, where its SHA-256 is published, and the programs to take out of it."""

    url: str
    sums: str
    programs: tuple[str, ...]


def archives(machine: str) -> Iterator[Archive]:
    """What is needed on a machine (amd64 or arm64) with Linux."""
    server = f"https://dl.k8s.io/{KUBERNETES}/kubernetes-server-linux-{machine}.tar.gz"
    programs = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
    yield Archive(server, f"{server}.sha256", programs)
    releases = f"https://github.com/etcd-io/etcd/releases/download/{ETCD}"
    yield Archive(f"{releases}/etcd-{ETCD}-linux-{machine}.tar.gz", f"{releases}/SHA256SUMS", ("etcd",))
    helm = f"https://get.helm.sh/helm-{HELM}-linux-{machine}.tar.gz"
    yield Archive(helm, f"{helm}.sha256sum", ("helm",))


def fetch(archive: Archive, folder: Path) -> None:
    """Download an archive, check it, and put its programs into ``folder``.

    Raises:
        AssetError: if it cannot be downloaded, has another checksum than the published one, or lacks a program.
    """
    published = _published(archive)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        file = Path(scratch) / "archive"
        got = _download(archive.url, file)
        if got != published:
            raise AssetError(f"{archive.url}: its SHA-256 is {got}, published is {published}; it was not unpacked")
        with tarfile.open(file) as members:
            found = {PurePosixPath(member.name).name: member for member in members if member.isfile()}
            for program in archive.programs:
                if program not in found:
                    raise AssetError(f"{archive.url}: holds no {program}")
                content = members.extractfile(found[program])
                assert content is not None
                target = Path(scratch) / program
                with target.open("wb") as out:
                    shutil.copyfileobj(content, out)
                target.chmod(0o755)
                target.replace(folder / program)


def _published(archive: Archive) -> str:
    """The checksum alone, or that of the archive's line in a list of them."""
    with _open(archive.sums) as answer:
        lines = [line.split() for line in answer.read().decode().splitlines() if line.strip()]
    name = archive.url.rpartition("/")[2]
    for words in lines:
        if len(words) == 1 or words[1].lstrip("*") == name:
            return words[0]
    raise AssetError(f"{archive.sums}: publishes no SHA-256 of {name}")


def _download(url: str, file: Path) -> str:
    digest = hashlib.sha256()
    with _open(url) as answer, file.open("wb") as out:
        while chunk := answer.read(1 << 20):
            digest.update(chunk)
            out.write(chunk)
    return digest.hexdigest()


def _open(url: str) -> HTTPResponse:
    try:
        answer: HTTPResponse = urllib.request.urlopen(url, timeout=60)
    except urllib.error.HTTPError as error:
        raise AssetError(f"{url}: {error.code} {error.reason}") from None
    except (urllib.error.URLError, TimeoutError) as error:
        raise AssetError(f"{url}: {getattr(error, 'reason', error)}; is this machine offline?") from None
    return answer


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    machine = MACHINES.get(platform.machine())
    if machine is None or platform.system() != "Linux":
        print(f"kube-assets: no control plane is released for {platform.system()} {platform.machine()}; use Linux")
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    for archive in archives(machine):
        if all((folder / program).exists() for program in archive.programs):
            continue
        print(f"kube-assets: {', '.join(archive.programs)} from {archive.url}", flush=True)
        try:
            fetch(archive, folder)
        except AssetError as error:
            print(f"kube-assets: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
