"""The real Kueue beside a control plane, and the queues that tests need."""

from __future__ import annotations

import base64
import contextlib
import shlex
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from tests.cluster import programs
from tests.cluster.certificates import issue
from tests.cluster.client import Client
from tests.cluster.control_plane import ControlPlane
from tests.cluster.processes import Program, free_port

MANIFESTS = Path(__file__).parent / "manifests"
MANIFEST = MANIFESTS / "kueue-0.17.0.yaml"  # CRDs and webhooks, unmodified (Apache-2.0)
# Kueue takes its metrics certificate from this folder alone, so it gets an /etc of its own.
START = """
mount -t tmpfs none /etc
mkdir -p /etc/kueue/metrics/certs
cp {certificates}/tls.crt {certificates}/tls.key /etc/kueue/metrics/certs/
exec setpriv --pdeathsig KILL {kueue} --feature-gates=VisibilityOnDemand=false --config {config} --kubeconfig {access}
"""


@contextlib.contextmanager
def running_kueue(plane: ControlPlane) -> Iterator[Program]:
    """Kueue with its CRDs and webhooks installed; both webhooks act on every pod but those of system namespaces."""
    kueue = programs.find("kueue")
    folder = Path(tempfile.mkdtemp(prefix="kueue-", dir=plane.folder))
    pair = issue(plane.authority, folder, "tls")
    health, webhook = free_port(), free_port()
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(_config(folder, health, webhook)))
    manifest = MANIFEST.read_text().replace("127.0.0.1:9443", f"127.0.0.1:{webhook}")
    authority = base64.b64encode(plane.authority.certificate.read_bytes()).decode()
    documents = list(yaml.safe_load_all(manifest.replace("CA_BUNDLE", authority)))
    hooks = [each for each in documents if each and "Webhook" in each["kind"]]
    rest = [each for each in documents if each and "Webhook" not in each["kind"]]
    kubectl = plane.kubectl()
    kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(rest))
    kubectl("wait", "--for=condition=Established", *(f"crd/{each['metadata']['name']}" for each in rest[1:]))
    script = START.format(
        certificates=pair.certificate.parent, kueue=shlex.quote(str(kueue)), config=config, access=plane.kubeconfig()
    )
    program = Program("kueue", ["unshare", "--map-root-user", "--mount", "sh", "-euc", script], folder)
    try:
        program.ready(lambda: _is_ready(health), 60.0)
        # last, so that no object waits for a webhook that does not listen yet
        kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(hooks))
        yield program
    finally:
        for hook in hooks:
            kubectl("delete", "--ignore-not-found", hook["kind"].lower(), hook["metadata"]["name"])
        program.stop(2.0)


def make_queue(client: Client, name: str, quotas: dict[str, str], *, preemption: str = "Never") -> None:
    """A flavour, a cluster queue with its quota, and a local queue of one name.

    Args:
        quotas: by resource; all that the pods request has to be in it.
        preemption: withinClusterQueue, Never or LowerPriority.
    """
    client.create("resourceflavors", _kueue("ResourceFlavor", name, {}))
    resources = [{"name": each, "nominalQuota": quota} for each, quota in quotas.items()]
    group = {"coveredResources": list(quotas), "flavors": [{"name": name, "resources": resources}]}
    spec = {
        "namespaceSelector": {},
        "resourceGroups": [group],
        "preemption": {"withinClusterQueue": preemption},
    }
    client.create("clusterqueues", _kueue("ClusterQueue", name, spec))
    client.create("localqueues", _kueue("LocalQueue", name, {"clusterQueue": name}))


def _kueue(kind: str, name: str, spec: Mapping[str, object]) -> dict[str, object]:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec}


def _is_ready(port: int) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
        return bool(answer.status == 200)


def _config(folder: Path, health: int, webhook: int) -> dict[str, object]:
    excluded = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "kueue-system"]}
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": f"127.0.0.1:{free_port()}"},
        "webhook": {"host": "127.0.0.1", "port": webhook, "certDir": str(folder)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "integrations": {"frameworks": ["batch/job", "pod"]},
        "managedJobsNamespaceSelector": {"matchExpressions": [excluded]},
        "clientConnection": {"qps": 500, "burst": 1000},
    }
