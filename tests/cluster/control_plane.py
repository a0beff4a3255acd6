"""A real Kubernetes control plane on loopback: etcd, API server, controller manager and scheduler, without nodes."""

from __future__ import annotations

import secrets
import shutil
import ssl
import tempfile
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from tests.cluster import programs
from tests.cluster.audit import AUDIT_POLICY, AuditLog
from tests.cluster.certificates import Pair, issue, make_authority, make_signing_key
from tests.cluster.client import Client, Kubectl
from tests.cluster.helm import operator_rules
from tests.cluster.processes import Program, free_port

CRDS = programs.REPOSITORY / "crds"
OPERATORS = "rollplex-operators"  # group of the users that operators run as


class ControlPlane:
    """``with ControlPlane() as plane``: ready on entry, gone on exit, and gone too when this process is killed.

    Args:
        folder: for certificates, logs and etcd; a new temporary folder without one, deleted on exit.
        feature_gates: for API server, controllers and scheduler, such as ``GenericWorkload=true``.
        runtime_config: API versions that are off by default, such as ``scheduling.k8s.io/v1beta1=true``.
        operators: how many users ``operator-0`` ... exist, each with its own token, so that writes can be told apart.
        crds: files of definitions that are installed before the controllers start: the garbage collector looks for
            new kinds only every 30 s.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        feature_gates: str = "",
        runtime_config: str = "",
        operators: int = 256,
        crds: Sequence[Path] | None = None,
    ) -> None:
        self._own_folder = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="rollplex-cluster-"))
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self.tokens = {name: secrets.token_hex(16) for name in ("admin", "controllers", "scheduler")}
        self.operators = [f"operator-{number}" for number in range(operators)]
        self.tokens |= {name: secrets.token_hex(16) for name in self.operators}
        self.programs: dict[str, Program] = {}
        self.authority: Pair
        self.audit_log = self.folder / "audit.jsonl"
        self._feature_gates, self._runtime_config = feature_gates, runtime_config
        self._crds = sorted(CRDS.glob("*.yaml")) if crds is None else crds
        self._etcd_port = free_port()
        self._commands: dict[str, list[str | Path]] = {}
        self._audit = AuditLog(self.audit_log)

    def __enter__(self) -> ControlPlane:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start all of it, and wait until pods can be created."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._start_etcd()
        self._make_credentials()
        self.start_api_server()
        self._let_operators_in()
        self._install_crds()
        self._start_controllers()
        client = self.client()
        for name, port in self._ports.items():
            self.programs[name].ready(partial(_is_healthy, port))
        self.programs["controllers"].ready(lambda: client.find("serviceaccounts", "default"))

    def stop(self) -> None:
        """End everything that was started, the last first."""
        for program in reversed(list(self.programs.values())):
            if program.running:
                program.thaw()
                program.process.terminate()
        for program in reversed(list(self.programs.values())):
            program.stop(5.0)
        if self._own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def client(self, user: str = "admin", namespace: str = "default") -> Client:
        """Requests as a user: admin, or operator-0, operator-1, ..."""
        return Client(self.url, self.authority.certificate, self.tokens[user], namespace)

    def kubectl(self, namespace: str = "default") -> Kubectl:
        """kubectl as admin."""
        return Kubectl(self.kubeconfig(), namespace)

    def kubeconfig(self, user: str = "admin", url: str | None = None, namespace: str = "default") -> Path:
        """Path of a kubeconfig for a user, at another URL where a proxy stands before the server."""
        path = (
            self.folder / f"{user}-{free_port()}.kubeconfig" if url else self.folder / f"{user}-{namespace}.kubeconfig"
        )
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "test",
                    "cluster": {
                        "server": url or self.url,
                        "certificate-authority": str(self.authority.certificate),
                    },
                }
            ],
            "users": [{"name": user, "user": {"token": self.tokens[user]}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user, "namespace": namespace}}],
            "current-context": "test",
        }
        path.write_text(yaml.safe_dump(config))
        return path

    def start_api_server(self) -> None:
        """Start the API server; also after ``programs["kube-apiserver"]`` was stopped: it keeps its port and state."""
        key = self.folder / "service-accounts.key"
        self.programs["kube-apiserver"] = Program(
            "kube-apiserver",
            [
                programs.find("kube-apiserver"),
                *("--etcd-servers", f"http://127.0.0.1:{self._etcd_port}"),
                *("--bind-address", "127.0.0.1", "--secure-port", str(self.port), "--advertise-address", "127.0.0.1"),
                *("--tls-cert-file", self.serving.certificate, "--tls-private-key-file", self.serving.key),
                *("--token-auth-file", self.folder / "tokens.csv", "--authorization-mode", "RBAC"),
                *("--service-account-issuer", "https://kubernetes.default.svc"),
                *("--service-account-key-file", key, "--service-account-signing-key-file", key),
                *("--service-cluster-ip-range", "10.96.0.0/12", "--allow-privileged"),
                *("--endpoint-reconciler-type", "none", "--enable-priority-and-fairness=false"),
                "--disable-admission-plugins=TaintNodesByCondition",
                *("--audit-policy-file", self.folder / "audit-policy.yaml", "--audit-log-path", self.audit_log),
                *(["--feature-gates", self._feature_gates] if self._feature_gates else []),
                *(["--runtime-config", self._runtime_config] if self._runtime_config else []),
            ],
            self.folder,
        )
        client = self.client()
        self.programs["kube-apiserver"].ready(lambda: client.request("GET", "/readyz"), 60.0)

    def writes(self, user: str, since: int = 0) -> list[dict[str, Any]]:
        """The writes of a user as the API server recorded them, from the ``since``-th on."""
        return self._audit.of(user)[since:]

    def _start_etcd(self) -> None:
        peer = f"http://127.0.0.1:{free_port()}"
        client = f"http://127.0.0.1:{self._etcd_port}"
        self.programs["etcd"] = Program(
            "etcd",
            [
                programs.find("etcd"),
                *("--data-dir", self.folder / "etcd", "--unsafe-no-fsync", "--log-level", "warn"),
                *("--listen-client-urls", client, "--advertise-client-urls", client),
                *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                *("--initial-cluster", f"default={peer}"),
            ],
            self.folder,
        )

    def _make_credentials(self) -> None:
        with ThreadPoolExecutor() as threads:
            signing = threads.submit(make_signing_key, self.folder)
            self.authority = make_authority(self.folder)
            names = ("IP:127.0.0.1", "DNS:localhost", "DNS:kubernetes.default.svc")
            self.serving = issue(self.authority, self.folder, "serving", names)
            signing.result()
        groups = {"admin": "system:masters", "controllers": "system:masters", "scheduler": "system:masters"}
        rows = [f'{token},{name},{name},"{groups.get(name, OPERATORS)}"\n' for name, token in self.tokens.items()]
        (self.folder / "tokens.csv").write_text("".join(rows))
        (self.folder / "audit-policy.yaml").write_text(yaml.safe_dump(AUDIT_POLICY))

    def _let_operators_in(self) -> None:
        """What the chart gives the operator, and no more: a right that it lacks fails tests."""
        group = "rbac.authorization.k8s.io"
        role = {"metadata": {"name": OPERATORS}, "rules": operator_rules()}
        binding = {
            "metadata": {"name": OPERATORS},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": OPERATORS},
            "subjects": [{"apiGroup": group, "kind": "Group", "name": OPERATORS}],
        }
        for plural, body in (("clusterroles", role), ("clusterrolebindings", binding)):
            self.client().request("POST", f"/apis/{group}/v1/{plural}", body)

    def _install_crds(self) -> None:
        client = self.client()
        for definition in (each for file in self._crds for each in yaml.safe_load_all(file.read_text())):
            client.apply("customresourcedefinitions", definition)
            client.wait("customresourcedefinitions", definition["metadata"]["name"], _is_established, 10.0)

    def _start_controllers(self) -> None:
        self._ports = {"controllers": free_port(), "scheduler": free_port()}
        fast = ("--kube-api-qps=2000", "--kube-api-burst=4000", "--leader-elect=false", "--bind-address=127.0.0.1")
        key = self.folder / "service-accounts.key"
        # without the gate the controllers would not take the finalizer of PodGroups away again
        gates = ["--feature-gates", self._feature_gates] if self._feature_gates else []
        commands: Mapping[str, list[str | Path]] = {
            "controllers": [
                programs.find("kube-controller-manager"),
                *("--root-ca-file", self.authority.certificate, "--service-account-private-key-file", key),
                # nodes have no kubelet that would keep them ready
                "--controllers=*,-node-lifecycle-controller",
                "--pvclaimbinder-sync-period=1s",  # a claim that is not bound at once would wait for 15 s
                *gates,
            ],
            "scheduler": [
                programs.find("kube-scheduler"),
                *gates,
            ],
        }
        for name, command in commands.items():
            config = self.kubeconfig(name)
            access = [f"--{kind}kubeconfig={config}" for kind in ("", "authentication-", "authorization-")]
            command += [*access, *fast, f"--secure-port={self._ports[name]}"]
            self._commands[name] = command
            self.restart(name)

    def restart(self, name: str) -> None:
        """Start the scheduler or the controllers; if they run, anew."""
        if name in self.programs:
            self.programs[name].stop()
        self.programs[name] = Program(name, self._commands[name], self.folder)


def _is_healthy(port: int) -> bool:
    context = ssl._create_unverified_context()  # these two make their own certificates
    with urllib.request.urlopen(f"https://127.0.0.1:{port}/healthz", timeout=5, context=context) as answer:
        return bool(answer.status == 200)


def _is_established(definition: Mapping[str, Any]) -> bool:
    conditions = definition.get("status", {}).get("conditions") or []  # null at first
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)
