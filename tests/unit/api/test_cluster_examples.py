"""The examples for clusters are jobs that the operator takes, and their queue has room for them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import yaml

from rollplex.api.load import load_job
from rollplex_operator import children
from rollplex_operator.observation import JobView, Server, Settings

FOLDER = Path(__file__).parents[3] / "examples" / "cluster"
QUEUES = FOLDER / "kueue-queues.yaml"
EXAMPLES = sorted(path for path in FOLDER.glob("*.yaml") if path != QUEUES)
SERVER = Server(kueue=True, device_classes=frozenset({"gpu.nvidia.com"}))
SETTINGS = Settings(default_image="rollplex/trainer:test")
UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def test_examples_are_found() -> None:
    names = {path.stem for path in EXAMPLES}
    assert names == {"smallest", "qwen2.5-vl-32b", "kueue", "suspend-resume", "dra"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_becomes_pods(path: Path) -> None:
    job = load_job(path, context="cluster")
    assert children.faults(job, SERVER, SETTINGS) == []


def test_smallest_example_is_small() -> None:
    assert len((FOLDER / "smallest.yaml").read_text().splitlines()) <= 20


def test_kueue_example_fits_its_queue() -> None:
    job = load_job(FOLDER / "kueue.yaml", context="cluster")
    _, cluster_queue, local_queue = yaml.safe_load_all(QUEUES.read_text())
    assert local_queue["metadata"]["name"] == job.spec.scheduling.queue
    view = JobView("uid", "default", "queued", 1, "1", 0.0, False, {}, {})
    wanted: Counter[str] = Counter()
    for pod in children.pods(view, job, children.resolve(job, SERVER), 0, range(job.spec.nodes), SETTINGS):
        for container in pod["spec"]["containers"]:
            wanted.update({name: _number(value) for name, value in container["resources"]["requests"].items()})
    [group] = cluster_queue["spec"]["resourceGroups"]
    quota = {each["name"]: _number(each["nominalQuota"]) for each in group["flavors"][0]["resources"]}
    assert list(quota) == group["coveredResources"]
    assert set(wanted) == set(quota)
    assert {name: (value, quota[name]) for name, value in wanted.items() if value > quota[name]} == {}


def _number(quantity: object) -> int:
    text = str(quantity)
    return int(text[:-2]) * UNITS[text[-2:]] if text[-2:] in UNITS else int(text)
