"""An operator that is newer than the installed definition: situation 30 (the chart's tests have the rest of it)."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.cluster.conftest import make_namespace
from tests.cluster.control_plane import CRDS, ControlPlane
from tests.cluster.fake_kubelet import FakeKubelet
from tests.cluster.history import History
from tests.cluster.jobs import has_reason
from tests.cluster.situation import Situation


def test_case_30_a_definition_that_lacks_a_field_is_refused(tmp_path: Path) -> None:
    [file] = CRDS.glob("*.yaml")
    definition = yaml.safe_load(file.read_text())
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    policy = spec["properties"]["runPolicy"]
    del policy["properties"]["cleanPods"]
    del policy["default"]["cleanPods"]
    (tmp_path / "old.yaml").write_text(yaml.safe_dump(definition))
    with (
        ControlPlane(tmp_path / "cluster", crds=[tmp_path / "old.yaml"]) as plane,
        FakeKubelet(plane) as kubelet,
        History(plane) as history,
    ):
        kubelet.add_nodes("node", 1)
        make_namespace(plane, "test")
        situation = Situation(plane, kubelet, history, "test")
        try:
            situation.start_operator()
            situation.create(nodes=1)
            situation.wait("job", has_reason("Admitted", "SchemaTooOld"))
            assert "spec.runPolicy.cleanPods" in situation.condition("Admitted")["message"]
            assert situation.pods() == []
            plane.client().apply("customresourcedefinitions", yaml.safe_load(file.read_text()))
            situation.wait("job", "Running", timeout=40)
            situation.check()
        finally:
            situation.close()
