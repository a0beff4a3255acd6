"""Watches that fall silent, break, expire or crawl, and an API server that restarts: situation 17."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.cluster.conftest import make_namespace
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fake_kubelet import FakeKubelet
from tests.cluster.history import History
from tests.cluster.proxy import Expiry, Proxy, Watches
from tests.cluster.situation import Situation

INACTIVITY = 3.0  # the shortest watch that still gets its bookmark
LIMIT = 6.0  # on a busy machine a watch and its bookmark take a while longer


def start(situation: Situation) -> Proxy:
    """A job that runs, seen through a proxy by an operator that gives up on silent watches soon."""
    proxy = situation.start_proxy()
    situation.start_operator("--watch-inactivity", str(INACTIVITY), "--watch-limit", str(LIMIT), proxy=proxy)
    situation.start(runPolicy={"restart": "newPods"})
    return proxy


def assert_moves_on(situation: Situation, within: float) -> None:
    attempt = situation.status()["attempt"]
    situation.fail()
    situation.wait_attempt(attempt + 1, timeout=within)
    assert situation.made() == 2 * (attempt + 2)


def test_case_17_silent_watches(bare: Situation) -> None:
    proxy = start(bare)
    operator = bare.operators[0]
    bare.wait_for("liveness is green", lambda: operator.answers("/healthz"), LIMIT)
    proxy.watches = Watches.SILENT
    bare.fail()
    bare.wait_for("liveness is red", lambda: not operator.answers("/healthz"), LIMIT + 10)
    proxy.watches = Watches.WORK
    bare.wait_attempt(1)
    bare.wait_for("liveness is green again", lambda: operator.answers("/healthz"), 15)
    assert bare.made() == 4
    bare.check()


def test_case_17_reset_connections(bare: Situation) -> None:
    proxy = start(bare)
    for _ in range(3):
        proxy.reset_connections()
        time.sleep(0.3)
    assert_moves_on(bare, 15)
    bare.check()


@pytest.mark.parametrize("expiry", Expiry, ids=lambda expiry: expiry.name)
def test_case_17_expired_watches(bare: Situation, expiry: Expiry) -> None:
    proxy = start(bare)
    proxy.expiry = expiry
    proxy.reset_connections()
    bare.fail()
    time.sleep(2.0)
    proxy.expiry = None
    bare.wait_attempt(1, timeout=20)
    assert bare.made() == 4
    bare.check()


def test_case_17_one_byte_a_second(bare: Situation) -> None:
    proxy = start(bare)
    proxy.watches = Watches.SLOW
    bare.fail()
    # a watch that crawls is alive by the letter: bytes come. It must be noticed that no event does.
    bare.wait("job", lambda job: job["status"]["attempt"] == 1, timeout=4 * INACTIVITY + 10)
    proxy.watches = Watches.WORK
    bare.wait("job", "Running", timeout=30)
    assert bare.made() == 4
    bare.check()


def test_case_17_the_api_server_restarts(tmp_path: Path) -> None:
    with ControlPlane(tmp_path / "cluster") as plane, FakeKubelet(plane) as kubelet, History(plane) as history:
        kubelet.add_nodes("node", 2)
        make_namespace(plane, "test")
        situation = Situation(plane, kubelet, history, "test")
        try:
            situation.start_operator("--watch-inactivity", str(INACTIVITY), "--watch-limit", "60")
            situation.start(runPolicy={"restart": "newPods"})
            plane.programs["kube-apiserver"].kill()
            time.sleep(2.0)
            plane.start_api_server()
            # it ends itself when it missed that a pod of one name became another; a node would start it again
            plane.restart("scheduler")
            assert_moves_on(situation, 60)
            situation.check()
        finally:
            situation.close()


@pytest.mark.long
def test_case_17_silent_watches_within_the_usual_limit(bare: Situation) -> None:
    proxy = bare.start_proxy()
    bare.start_operator(proxy=proxy)
    bare.start(runPolicy={"restart": "newPods"})
    proxy.watches = Watches.SILENT
    bare.fail()
    time.sleep(5.0)
    assert bare.status()["phase"] == "Running"
    opened = len([request for request in proxy.requests if request.is_watch])
    bare.wait_for("watches begin anew", lambda: len([r for r in proxy.requests if r.is_watch]) > opened, 100)
    proxy.watches = Watches.WORK
    bare.wait_attempt(1, timeout=100)
    bare.check()
