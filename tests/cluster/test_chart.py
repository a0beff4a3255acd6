"""What Helm makes of the chart's values."""

from __future__ import annotations

from typing import Any

import pytest

from rollplex_operator.options import parse
from tests.cluster.chart_values import FEATURES, FULL
from tests.cluster.helm import CHART, HelmError, helm, render


def test_lint_is_strict() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))


def test_features_make_what_they_say() -> None:
    kinds = {name: sorted(each["kind"] for each in render(values)) for name, values in FEATURES.items()}
    assert "PodDisruptionBudget" in kinds["defaults"]
    assert "PodDisruptionBudget" not in kinds["one-replica"] + kinds["no-budget"]
    assert "CustomResourceDefinition" not in kinds["no-crd"]
    assert {"NetworkPolicy", "ServiceMonitor", "PodMonitor"} <= set(kinds["everything"])
    assert not [kind for kind in kinds["no-rbac"] if "Role" in kind or kind == "ServiceAccount"]
    assert not [kind for kind in kinds["no-cluster-objects"] if kind.startswith(("Cluster", "Custom"))]


def test_every_object_has_the_labels_and_annotations_asked_for() -> None:
    for each in render({**FULL, "namespaces": ["team-a"]}):
        assert each["metadata"]["labels"]["team"] == "a", each["kind"]
        assert each["metadata"]["annotations"]["example.com/owner"] == "a", each["kind"]


def test_images_and_pull_secrets_reach_the_operator() -> None:
    (deployment,) = [each for each in render(FULL) if each["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == "mirror.example:5000/team/rollplex/operator@sha256:" + "a" * 64
    assert pod["imagePullSecrets"] == [{"name": "mirror"}]
    assert {"--default-image=rollplex/trainer:1", "--image-pull-secret=mirror", "--image-pull-policy=Never"} <= set(
        container["args"]
    )
    assert "runAsUser" not in pod["securityContext"]
    assert pod["securityContext"]["fsGroup"] == 7


@pytest.mark.parametrize("name", ["defaults", "everything-namespaced"])
def test_operator_understands_its_command_line(name: str) -> None:
    (deployment,) = [each for each in render(FEATURES[name]) if each["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    options = parse(container["args"], {})
    assert options.namespaces == (("team-a", "team-b") if "namespaced" in name else None)
    assert options.port == container["ports"][0]["containerPort"]
    assert (options.home, options.leader_elect) == ("ops", True)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"replica": 2}, "replica"),
        ({"image": {"tagg": "1"}}, "tagg"),
        ({"replicas": "two"}, "replicas"),
        ({"logLevel": "loud"}, "logLevel"),
        ({"image": {"digest": "sha256:12"}}, "digest"),
        ({"image": {"registry": "https://mirror.example"}}, "registry"),
        ({"namespaces": ["Team_A"]}, "namespaces"),
        ({"networkPolicy": {"apiServerPorts": [0]}}, "apiServerPorts"),
        ({"podSecurity": {"runAsUser": 0}}, "runAsUser"),
        ({"monitoring": {"trainer": {"interval": "often"}}}, "interval"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_bad_values_are_refused_by_name(values: dict[str, Any], said: str) -> None:
    with pytest.raises(HelmError, match=said):
        render(values)
