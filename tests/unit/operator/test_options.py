"""The command line and its environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from rollplex_operator import options
from rollplex_operator.options import Options, parse


def test_defaults_serve_the_whole_cluster_with_leader_election() -> None:
    given = parse([], {})
    assert given.namespaces is None
    assert given.leader_elect
    assert (given.port, given.lease_name, given.log_level) == (8080, "rollplex-operator", "info")
    assert (given.settings.default_image, given.settings.image_pull_secrets) == ("", ())
    assert given.limits.watch > given.inactivity


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (
            [
                *("--namespace", "a", "--namespace", "b", "--image-pull-secret", "x", "--image-pull-secret", "y"),
                *("--default-image", "i:1", "--image-pull-policy", "Never", "--port", "9", "--no-leader-elect"),
                *("--lease-namespace", "ops", "--lease-name", "l", "--watch-inactivity", "5", "--watch-limit", "6"),
                *("--queue-limit", "7", "--log-level", "debug", "--kubeconfig", "/k"),
            ],
            {},
        ),
        (
            [],
            {
                "ROLLPLEX_OPERATOR_NAMESPACE": "a, b,a,",
                "ROLLPLEX_OPERATOR_IMAGE_PULL_SECRET": "x,y",
                "ROLLPLEX_OPERATOR_DEFAULT_IMAGE": "i:1",
                "ROLLPLEX_OPERATOR_IMAGE_PULL_POLICY": "Never",
                "ROLLPLEX_OPERATOR_PORT": "9",
                "ROLLPLEX_OPERATOR_LEADER_ELECT": "false",
                "ROLLPLEX_OPERATOR_LEASE_NAMESPACE": "ops",
                "ROLLPLEX_OPERATOR_LEASE_NAME": "l",
                "ROLLPLEX_OPERATOR_WATCH_INACTIVITY": "5",
                "ROLLPLEX_OPERATOR_WATCH_LIMIT": "6",
                "ROLLPLEX_OPERATOR_QUEUE_LIMIT": "7",
                "ROLLPLEX_OPERATOR_LOG_LEVEL": "debug",
                "ROLLPLEX_OPERATOR_KUBECONFIG": "/k",
            },
        ),
    ],
    ids=["flags", "environment"],
)
def test_every_option_is_a_flag_and_a_variable(arguments: list[str], environment: Mapping[str, str]) -> None:
    given = parse(arguments, environment)
    assert given.namespaces == ("a", "b")
    settings = given.settings
    assert (settings.default_image, settings.image_pull_secrets, settings.image_pull_policy) == (
        *("i:1", ("x", "y")),
        "Never",
    )
    assert (given.port, given.leader_elect, given.home, given.lease_name) == (9, False, "ops", "l")
    assert (given.inactivity, given.limits.watch, given.limits.queue) == (5.0, 6.0, 7.0)
    assert (given.log_level, given.kubeconfig) == ("debug", "/k")


def test_flag_goes_before_its_variable() -> None:
    environment = {"ROLLPLEX_OPERATOR_PORT": "1", "ROLLPLEX_OPERATOR_LEADER_ELECT": "false"}
    given = parse(["--port", "2", "--leader-elect"], environment)
    assert (given.port, given.leader_elect) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--watch-limit", "60"], "--watch-limit 60 must be above --watch-inactivity 70"),
        (["--port", "http"], "--port: invalid int value: 'http'"),
        (["--log-level", "loud"], "--log-level: invalid choice: 'loud'"),
        (["--image-pull-policy", "Sometimes"], "--image-pull-policy: invalid choice"),
        (["--namespaces", "a"], "unrecognized arguments: --namespaces"),
    ],
)
def test_wrong_options_are_refused_by_name(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments, {})
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_home_is_where_the_operator_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def home(environment: Mapping[str, str]) -> Options:
        return parse([], environment)

    monkeypatch.setattr(options, "NAMESPACE_FILE", tmp_path / "namespace")
    assert home({}).home == "default"
    options.NAMESPACE_FILE.write_text("in-cluster\n")
    assert home({}).home == "in-cluster"
    assert home({"POD_NAMESPACE": "downward"}).home == "downward"


def test_identities_differ_between_processes_of_one_host() -> None:
    assert parse([], {}).identity != parse([], {}).identity
