"""A certificate authority for one run of the tests, by the openssl command."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, PEM files."""

    certificate: Path
    key: Path


def make_authority(folder: Path) -> Pair:
    """A self-signed authority."""
    pair = Pair(folder / "ca.crt", folder / "ca.key")
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", pair.key)
    _openssl(
        *("req", "-x509", "-new", "-key", pair.key, "-subj", "/CN=test-authority", "-days", "30"),
        *("-out", pair.certificate),
    )
    return pair


def issue(authority: Pair, folder: Path, name: str, addresses: tuple[str, ...] = ("IP:127.0.0.1",)) -> Pair:
    """A server's certificate for the given ``IP:`` and ``DNS:`` names."""
    pair = Pair(folder / f"{name}.crt", folder / f"{name}.key")
    request, extensions = folder / f"{name}.csr", folder / f"{name}.ext"
    extensions.write_text(f"subjectAltName={','.join(addresses)}\nextendedKeyUsage=serverAuth\n")
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", pair.key)
    _openssl("req", "-new", "-key", pair.key, "-subj", f"/CN={name}", "-out", request)
    _openssl(
        *("x509", "-req", "-in", request, "-CA", authority.certificate, "-CAkey", authority.key, "-CAcreateserial"),
        *("-days", "30", "-extfile", extensions, "-out", pair.certificate),
    )
    return pair


def make_signing_key(folder: Path) -> Path:
    """The private key that signs tokens of service accounts; the API server takes it as its public one too."""
    key = folder / "service-accounts.key"
    _openssl("genrsa", "-out", key, "2048")
    return key


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
