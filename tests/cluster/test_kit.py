"""The parts that are played, the kubelet and the faulty network, do what the real ones do."""

from __future__ import annotations

import time
from typing import Any

import pytest
import requests

from rollplex_operator import names
from tests.cluster.client import Client, Object, RefusedError
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fake_kubelet import FakeKubelet, Fate
from tests.cluster.processes import wait_for
from tests.cluster.proxy import Expiry, Fault, Proxy, Watches

IN_PLACE = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}]


def make_pod(name: str = "j-0", grace: int = 30, **container: Any) -> Object:
    labels = {names.LABEL_JOB: "j", names.LABEL_ATTEMPT: "0", names.LABEL_NODE: name[-1]}
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": grace,
        "containers": [{"name": names.CONTAINER, "image": "x", **container}],
    }
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


def phase(client: Client, name: str, wanted: str) -> Object:
    return client.wait("pods", name, lambda pod: pod["status"].get("phase") == wanted, 10.0)


def test_kubelet_runs_and_reports(client: Client, kubelet: FakeKubelet) -> None:
    client.create("pods", make_pod())
    pod = phase(client, "j-0", "Running")
    kubelet.report(client.namespace, "j", step=3)
    answer = requests.get(f"http://{pod['status']['podIP']}:{names.METRICS_PORT}/status", timeout=5)
    assert answer.json() == {"attempt": 0, "step": 3, "targetStep": 10}
    kubelet.end(client.namespace, "j-0", 7, "broken")
    terminated = phase(client, "j-0", "Failed")["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (terminated["exitCode"], terminated["message"]) == (7, "broken")


def test_kubelet_restarts_in_place_where_the_pod_says_so(client: Client, kubelet: FakeKubelet) -> None:
    client.create("pods", make_pod(restartPolicy="Never", restartPolicyRules=IN_PLACE))
    before = phase(client, "j-0", "Running")
    kubelet.restart_in_place(client.namespace, "j")
    after = client.wait("pods", "j-0", lambda pod: pod["status"]["containerStatuses"][0]["restartCount"] == 1, 10.0)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["phase"] == "Running"


@pytest.mark.parametrize(("terminate", "grace", "lasts"), [(1.5, 30, 1.5), (30.0, 1, 1.0)])
def test_kubelet_takes_its_time_to_terminate(
    client: Client, kubelet: FakeKubelet, terminate: float, grace: int, lasts: float
) -> None:
    kubelet.fates[client.namespace] = lambda _: Fate(terminate_seconds=terminate)
    client.create("pods", make_pod(grace=grace))
    phase(client, "j-0", "Running")
    client.delete("pods", "j-0")
    assert lasts - 0.2 <= wait_for("it is gone", lambda: client.find("pods", "j-0") is None) < lasts + 3


def test_kubelet_rejects_and_waits(client: Client, kubelet: FakeKubelet) -> None:
    kubelet.fates[client.namespace] = lambda pod: Fate(reject="TopologyAffinityError") if pod.index else Fate(wait="X")
    client.create("pods", make_pod("j-0"))
    client.create("pods", make_pod("j-1"))
    assert phase(client, "j-1", "Failed")["status"]["reason"] == "TopologyAffinityError"
    waits = client.wait("pods", "j-0", lambda pod: pod["status"].get("containerStatuses"), 10.0)
    assert waits["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "X"


def test_kubelet_of_a_dead_node_does_nothing(client: Client, kubelet: FakeKubelet) -> None:
    node = kubelet.add_nodes(f"{client.namespace}-dead", 1)[0]
    pod = make_pod()
    pod["spec"]["nodeName"] = node
    client.create("pods", pod)
    phase(client, "j-0", "Running")
    kubelet.kill_node(node)
    client.delete("pods", "j-0", grace=1)
    time.sleep(2.0)
    assert "deletionTimestamp" in client.get("pods", "j-0")["metadata"]
    client.delete("pods", "j-0", grace=0)
    assert client.find("pods", "j-0") is None


@pytest.mark.parametrize(("fault", "code"), [(Fault.CONFLICT, 409), (Fault.TOO_MANY, 429), (Fault.UNAVAILABLE, 503)])
def test_proxy_fails_the_kth_request_only(plane: ControlPlane, client: Client, fault: Fault, code: int) -> None:
    with Proxy(plane) as proxy:
        through = Client(proxy.url, plane.authority.certificate, client.token, client.namespace)
        proxy.fail_kth(2, fault)
        through.list("configmaps")
        with pytest.raises(RefusedError) as refused:
            through.create("configmaps", {"metadata": {"name": "a"}})
        assert refused.value.code == code
        assert client.find("configmaps", "a") is None
        through.create("configmaps", {"metadata": {"name": "a"}})
        assert [str(request)[:4] for request in proxy.counted] == ["GET ", "POST", "POST"]


def test_proxy_loses_the_reply_of_what_was_done(plane: ControlPlane, client: Client) -> None:
    with Proxy(plane) as proxy:
        through = Client(proxy.url, plane.authority.certificate, client.token, client.namespace)
        proxy.fail_kth(1, Fault.REPLY_LOST)
        with pytest.raises(requests.ConnectionError):
            through.create("configmaps", {"metadata": {"name": "a"}})
        assert client.find("configmaps", "a") is not None


def test_proxy_silences_and_cuts_watches(plane: ControlPlane, client: Client) -> None:
    with Proxy(plane) as proxy:
        url = f"{proxy.url}/api/v1/namespaces/{client.namespace}/configmaps?watch=1&resourceVersion=0"
        headers = {"Authorization": f"Bearer {client.token}"}
        with requests.get(url, headers=headers, stream=True, timeout=(5, 2)) as watch:
            lines = watch.iter_lines(chunk_size=65536)
            assert b"kube-root-ca.crt" in next(lines)
            proxy.watches = Watches.SILENT
            client.create("configmaps", {"metadata": {"name": "a"}})
            with pytest.raises(requests.ConnectionError, match="timed out"):
                next(lines)
        with requests.get(url, headers=headers, stream=True, timeout=(5, 5)) as watch:
            began = time.monotonic()
            proxy.reset_connections()
            with pytest.raises(requests.RequestException):
                list(watch.iter_lines())
            assert time.monotonic() - began < 2
        proxy.expiry = Expiry.REPLY
        assert requests.get(url, headers=headers, timeout=5).status_code == 410
        # the event is what the server itself says of a version that is too old
        proxy.expiry, proxy.watches = None, Watches.WORK
        jobs = f"{proxy.url}{client.path('rollplexjobs')}?watch=1&resourceVersion=1"  # older than their definition
        old = requests.get(jobs, headers=headers, timeout=5)
        proxy.expiry = Expiry.EVENT
        played = requests.get(url, headers=headers, timeout=5)
        for answer in (old, played):
            assert answer.status_code == 200
            assert answer.json()["type"] == "ERROR"
            assert answer.json()["object"]["code"] == 410
