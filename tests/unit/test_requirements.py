"""requirements/cpu.txt is complete: everything is installed with --no-deps, so pip would not notice a gap."""

from __future__ import annotations

import ast
import importlib.metadata
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def pins(name: str) -> dict[str, str]:
    """Exact versions in a file of requirements/; any other line is an error."""
    found: dict[str, str] = {}
    for line in (ROOT / "requirements" / name).read_text().splitlines():
        if line and not line.startswith("#"):
            package, version = line.split("==")
            found[canonicalize_name(package)] = version
    return found


LOCK = pins("cpu.txt")
ENGINES = pins("cpu-engines.txt") | pins("cpu-torch.txt")
ELSEWHERE = {"cuda": ["cuda-bindings"]}  # of the extra gpu, which is not installed on a CPU
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def wanted(requirements: list[str]) -> Iterator[Requirement]:
    for text in requirements:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement


def unmet(requirements: list[str]) -> list[str]:
    return [
        str(requirement)
        for requirement in wanted(requirements)
        if not requirement.specifier.contains(LOCK.get(canonicalize_name(requirement.name), ""), prereleases=True)
        or canonicalize_name(requirement.name) not in LOCK
    ]


def imported(folder: str) -> set[str]:
    """Top-level names that the modules below a folder import, wherever in them."""
    names: set[str] = set()
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                names.add(node.module)
    return {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names)


@pytest.mark.parametrize(
    ("folder", "own", "extras"),
    [
        ("trainer", {"rollplex"}, ("train", "wandb", "gpu")),
        ("operator", {"rollplex", "rollplex_operator"}, ("operator",)),
        ("tests", {"rollplex", "rollplex_operator", "tests", "docs"}, ("train", "operator", "dev")),
    ],
)
def test_what_is_imported_is_asked_for(folder: str, own: set[str], extras: tuple[str, ...]) -> None:
    lists = [PROJECT["dependencies"], *(PROJECT["optional-dependencies"][extra] for extra in extras)]
    asked = {canonicalize_name(Requirement(text).name) for part in lists for text in part} | ENGINES.keys()
    distributions = {**importlib.metadata.packages_distributions(), **ELSEWHERE}
    missing = {
        name
        for name in imported(folder) - own
        if asked.isdisjoint(canonicalize_name(distribution) for distribution in distributions.get(name, []))
    }
    assert missing == set(), "put it into pyproject.toml, then: make lock"


def test_lock_has_what_rollplex_asks_for() -> None:
    extras = PROJECT["optional-dependencies"]
    assert unmet([*PROJECT["dependencies"], *extras["train"], *extras["operator"], *extras["dev"]]) == [], (
        "run: make lock"
    )


@pytest.mark.parametrize("package", sorted(LOCK))
def test_lock_has_what_its_packages_ask_for(package: str) -> None:
    """By what the installed version says of itself; so this also shows that the locked one is what is installed."""
    assert importlib.metadata.version(package) == LOCK[package], "run: make setup"
    assert unmet(importlib.metadata.requires(package) or []) == []


@pytest.mark.parametrize("package", sorted(ENGINES))
def test_installed_engines_are_the_pinned_ones(package: str) -> None:
    """Of a number without a build, as torchvision's, any build may be installed."""
    assert SpecifierSet(f"=={ENGINES[package]}").contains(importlib.metadata.version(package)), "run: make setup"


def test_lock_leaves_the_engines_out() -> None:
    """Locked, they would be installed before the CPU build of torch, and pip would look for another."""
    assert LOCK.keys().isdisjoint(ENGINES)
