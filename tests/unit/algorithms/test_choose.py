"""A job's choice: every name has an algorithm, and what the job leaves out is the algorithm's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from rollplex.algorithms.base import Settings
from rollplex.algorithms.choose import ALGORITHMS, chosen
from rollplex.api import AlgorithmSpec, RollplexJob
from rollplex.api.algorithm import OPTIONS


def spec(**algorithm: Any) -> Any:
    return RollplexJob.model_validate(
        {
            "metadata": {"name": "small"},
            "spec": {
                "model": {"path": "m", "reference": "teacher" if algorithm.get("name") == "opd" else "initial"},
                "data": {"train": "t.jsonl"},
                "reward": [{"name": "exact"}],
                "algorithm": algorithm,
                "rollout": {"maxTokens": 50},
                "training": {"steps": 3},
            },
        }
    ).spec


def test_every_name_of_a_job_has_its_algorithm() -> None:
    names = get_args(AlgorithmSpec.model_fields["name"].annotation)
    assert set(ALGORITHMS) == set(OPTIONS) == set(names)
    assert all(algorithm.name == name for name, algorithm in ALGORITHMS.items())
    assert all(algorithm.options is OPTIONS[name] for name, algorithm in ALGORITHMS.items())


@pytest.mark.parametrize(
    ("name", "scope", "settings"),
    [
        ("grpo", "group", Settings("sequence", 0.2, 0.2, 2.0, 0.001, "k3", 50)),
        ("dr_grpo", "group", Settings("constant", 0.2, 0.2, 2.0, 0.0, "k3", 50)),
        ("gspo", "group", Settings("sequence", 3e-4, 4e-4, 2.0, 0.0, "k3", 50)),
        ("dapo", "group", Settings("token", 0.2, 0.28, 2.0, 0.0, "k3", 50, 10, 1.0)),
        ("cispo", "group", Settings("token", 1.0, 0.28, 2.0, 0.0, "k3", 50)),
        ("rloo", "group", Settings("sum", 0.0, 0.0, 2.0, 0.001, "k3", 50)),
        ("reinforce_plus_plus", "batch", Settings("sequence", 0.2, 0.2, 2.0, 0.001, "k3", 50)),
        ("opd", "none", Settings("token", 0.0, 0.0, 2.0, 0.0, "k1", 50)),
    ],
)
def test_what_a_job_leaves_out_is_the_papers(name: str, scope: str, settings: Settings) -> None:
    algorithm, found = chosen(spec(name=name))
    assert (algorithm.name, algorithm.scope, found) == (name, scope, settings)


def test_what_a_job_gives_is_taken() -> None:
    given = {
        "name": "dapo",
        "normalization": "constant",
        "ratioCap": 5.0,
        "clip": {"high": 0.5},
        "kl": {"coefficient": 0.01, "estimator": "k2"},
        "overlong": {"buffer": 0, "penalty": 2.0},
    }
    assert chosen(spec(**given))[1] == Settings("constant", 0.2, 0.5, 5.0, 0.01, "k2", 50, 0, 2.0)
    assert chosen(spec(name="grpo", kl={"coefficient": 0.0}))[1].kl_coefficient == 0.0


@pytest.mark.parametrize("name", OPTIONS)
def test_a_filled_section_is_valid_and_chooses_the_same(name: str) -> None:
    """The resolved job of a run folder spells everything out, and is a job again."""
    given = spec(name=name)
    filled = given.algorithm.filled(50)
    again = AlgorithmSpec.model_validate(filled.model_dump(by_alias=True))
    assert again == filled == filled.filled(50)
    assert again.normalization == OPTIONS[name].normalization
    assert chosen(given.model_copy(update={"algorithm": again})) == chosen(given)


@pytest.mark.parametrize(
    ("algorithm", "needed"),
    [
        ({"name": "grpo"}, True),
        ({"name": "grpo", "kl": {"coefficient": 0.0}}, False),
        ({"name": "dapo"}, False),
        ({"name": "dapo", "kl": {"coefficient": 0.1}}, True),
        ({"name": "opd"}, True),
    ],
)
def test_a_second_model_is_loaded_for_a_kl_or_a_teacher(algorithm: dict[str, Any], needed: bool) -> None:
    assert spec(**algorithm).algorithm.needs_reference == needed


def test_the_page_has_the_table_of_the_code() -> None:
    page = (Path(__file__).parents[3] / "docs" / "algorithms.md").read_text()
    for name, own in OPTIONS.items():
        others = ", ".join(other for other in own.others if other != own.normalization) or "-"
        low, high = own.clip or ("-", "-")
        kl, overlong = "-" if own.kl is None else own.kl, "yes" if own.overlong else "-"
        cells = (f"`{name}`", ALGORITHMS[name].scope, own.normalization, others, low, high, kl, overlong)
        assert f"| {' | '.join(map(str, cells))} |" in page, name
