"""One control plane for the session, one namespace for a test."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence

import pytest

from tests.cluster.client import Client, Kubectl
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fake_kubelet import FakeKubelet
from tests.cluster.history import History
from tests.cluster.jobs import CLAIM
from tests.cluster.shared import SharedOperator
from tests.cluster.situation import Situation

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with the RollplexJob CRD, as servers come: no feature gate set."""
    with ControlPlane(tmp_path_factory.mktemp("cluster")) as started:
        yield started


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that the shared operator must not disturb come last, so that it is started once."""
    items.sort(key=lambda item: _is_undisturbed(getattr(item, "fixturenames", ())))


def _is_undisturbed(fixtures: Sequence[str]) -> bool:
    return not {"namespace", "lanes"}.isdisjoint(fixtures) and "situation" not in fixtures


@pytest.fixture(scope="session")
def shared(plane: ControlPlane, kubelet: FakeKubelet, history: History) -> Iterator[SharedOperator]:
    """The operator of all tests that use ``situation``."""
    operator = SharedOperator(plane, kubelet, history)
    yield operator
    operator.stop()


@pytest.fixture
def namespace(request: pytest.FixtureRequest, plane: ControlPlane, shared: SharedOperator) -> Iterator[str]:
    """A namespace of the test's own; nobody serves it but where the test uses ``situation``."""
    if _is_undisturbed(request.fixturenames):
        shared.stop()
        with fresh_namespace(plane) as name:
            yield name
    else:
        yield new_namespace(plane)


@pytest.fixture
def client(plane: ControlPlane, namespace: str) -> Client:
    """Requests as admin in the test's namespace."""
    return plane.client(namespace=namespace)


@pytest.fixture
def kubectl(plane: ControlPlane, namespace: str) -> Kubectl:
    """kubectl as admin in the test's namespace."""
    return plane.kubectl(namespace)


@pytest.fixture(scope="session")
def kubelet(plane: ControlPlane) -> Iterator[FakeKubelet]:
    """The kubelet of all nodes, with 8 of them that are large enough for anything."""
    with FakeKubelet(plane) as played:
        played.add_nodes("node", 8)
        yield played


@pytest.fixture(scope="session")
def history(plane: ControlPlane) -> Iterator[History]:
    """Every version of every job."""
    with History(plane) as recorded:
        yield recorded


@pytest.fixture
def bare(plane: ControlPlane, kubelet: FakeKubelet, history: History, namespace: str) -> Iterator[Situation]:
    """A namespace without an operator."""
    situation = Situation(plane, kubelet, history, namespace)
    yield situation
    situation.close()


@pytest.fixture
def situation(shared: SharedOperator, namespace: str) -> Iterator[Situation]:
    """A namespace with an operator. After the test all that must hold after every situation is asserted."""
    served = shared.situation(namespace)
    yield served
    served.close()
    shared.check(served)


@contextlib.contextmanager
def fresh_namespace(plane: ControlPlane, labels: dict[str, str] | None = None) -> Iterator[str]:
    """A namespace of a name that was never used; its deletion is asked for afterwards, not waited for."""
    name = new_namespace(plane, labels)
    yield name
    delete_namespace(plane, name)


def new_namespace(plane: ControlPlane, labels: dict[str, str] | None = None) -> str:
    """A namespace of a name that was never used, which stays."""
    name = f"test-{next(_numbers)}"
    make_namespace(plane, name, labels)
    return name


def make_namespace(plane: ControlPlane, name: str, labels: dict[str, str] | None = None) -> None:
    """A namespace in which pods can be created and scheduled: it has a service account, and the claim of the jobs."""
    client = plane.client(namespace=name)
    client.create("namespaces", {"metadata": {"name": name, "labels": labels or {}}})
    size = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = {
        **size,
        "capacity": {"storage": "1Gi"},
        "hostPath": {"path": "/data"},
        "claimRef": {"namespace": name, "name": CLAIM},
    }
    client.create("persistentvolumes", {"metadata": {"name": name}, "spec": volume})
    claim = {**size, "resources": {"requests": {"storage": "1Gi"}}, "volumeName": name}
    client.create("persistentvolumeclaims", {"metadata": {"name": CLAIM}, "spec": claim})
    client.wait("persistentvolumeclaims", CLAIM, lambda claim: claim["status"].get("phase") == "Bound", 20.0)
    client.wait("serviceaccounts", "default", lambda account: True, 20.0)


def delete_namespace(plane: ControlPlane, name: str) -> None:
    """Ask for its deletion, and do not wait."""
    plane.client().delete("namespaces", name, missing_ok=True)
    plane.client().delete("persistentvolumes", name, missing_ok=True)
