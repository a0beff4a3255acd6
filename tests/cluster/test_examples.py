"""The API server takes every example, and with Kueue's definitions its queues."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.cluster.client import Kubectl
from tests.cluster.control_plane import ControlPlane
from tests.cluster.kueue import MANIFEST
from tests.cluster.programs import REPOSITORY

FOLDER = REPOSITORY / "examples" / "cluster"
QUEUES = FOLDER / "kueue-queues.yaml"


@pytest.mark.parametrize("path", sorted(set(FOLDER.glob("*.yaml")) - {QUEUES}), ids=lambda path: path.stem)
def test_example_is_taken(kubectl: Kubectl, path: Path) -> None:
    name = yaml.safe_load(path.read_text())["metadata"]["name"]
    said = kubectl("apply", "-f", str(path))
    assert said == f"rollplexjob.rollplex.io/{name} created\n"
    version = kubectl("get", "rpj", name, "-o", "jsonpath={.metadata.resourceVersion}")
    kubectl("apply", "-f", str(path))  # kubectl sends lists whole, without their defaults: nothing comes of it
    assert kubectl("get", "rpj", name, "-o", "jsonpath={.metadata.resourceVersion}") == version
    assert kubectl("diff", "-f", str(path)) == ""


def test_suspended_example_obeys_the_commands_in_it(kubectl: Kubectl) -> None:
    path = FOLDER / "suspend-resume.yaml"
    kubectl("apply", "-f", str(path))
    commands = [line.removeprefix("#   kubectl ") for line in path.read_text().splitlines() if "#   kubectl" in line]
    assert len(commands) == 3
    for command in commands:
        head, patch, _ = command.split("'")
        kubectl(*head.split(), patch)
    spec = yaml.safe_load(kubectl("get", "rpj", "patient", "-o", "yaml"))["spec"]
    assert (spec["nodes"], spec["runPolicy"]["suspend"]) == (2, False)


def test_queues_of_the_kueue_example_are_right(plane: ControlPlane, kubectl: Kubectl) -> None:
    documents = [each for each in yaml.safe_load_all(MANIFEST.read_text()) if each]
    definitions = [each for each in documents if each["kind"] == "CustomResourceDefinition"]
    for each in definitions:
        each["spec"].pop("conversion", None)  # Kueue itself does not run here
    names = [f"crd/{each['metadata']['name']}" for each in definitions]
    try:
        kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(definitions))
        kubectl("wait", "--for=condition=Established", *names)
        said = kubectl("apply", "--dry-run=server", "-f", str(QUEUES)).splitlines()
    finally:
        kubectl("delete", "--ignore-not-found", "--wait=false", *names)  # operators of other tests would see a Kueue
    assert [line.split()[0] for line in said] == [
        "resourceflavor.kueue.x-k8s.io/h100",
        "clusterqueue.kueue.x-k8s.io/research",
        "localqueue.kueue.x-k8s.io/team-a",
    ]
