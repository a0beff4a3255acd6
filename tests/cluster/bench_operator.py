"""What the operator costs, on a real control plane that shares the machine with it: ``make bench-operator``.

Prints a table and writes JSON: seconds from the last apply to the last pod, memory with 2,000 pods, what it does when
nothing changes, and the requests that the API server counted.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster.conftest import make_namespace
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fake_kubelet import FakeKubelet
from tests.cluster.jobs import make_job
from tests.cluster.operator_process import Operator
from tests.cluster.processes import wait_for

NAMESPACE = "bench"
LIMITS = {
    "200 jobs x 4 pods: last pod, s after the last apply": 30.0,
    "a job of 512 nodes: last pod, s after its apply": 20.0,
    "memory with 2,000 pods, MB": 120.0,
    "idle 60 s: writes": 0.0,
    "idle 60 s: CPU, % of a core": 2.0,
}
_COUNT = re.compile(r"^apiserver_request_total\{.*?\} (\S+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass
class Result:
    """All of it."""

    cores: int
    figures: dict[str, float] = field(default_factory=dict)
    requests: dict[str, dict[str, int]] = field(default_factory=dict)  # by part, by verb and resource


class Bench:
    """One run; every part adds its figures to ``result``."""

    def __init__(self, plane: ControlPlane, kubelet: FakeKubelet, operator: Operator) -> None:
        self.plane, self.kubelet, self.operator = plane, kubelet, operator
        self.client = plane.client(namespace=NAMESPACE)
        self.result = Result(os.cpu_count() or 0)

    def many(self, jobs: int, nodes: int) -> None:
        """So many jobs at once."""
        before = self.requests()
        with ThreadPoolExecutor(4) as threads:
            bodies = [make_job(f"job-{number}", nodes) for number in range(jobs)]
            list(threads.map(lambda body: self.client.create("rollplexjobs", body), bodies))
        took = self._until_pods(jobs * nodes)
        self._note(f"{jobs} jobs x {nodes} pods: last pod, s after the last apply", took, before)

    def large(self, nodes: int) -> None:
        """One job of many nodes."""
        had, before = self._pods(), self.requests()
        self.client.create("rollplexjobs", make_job("large", nodes))
        took = self._until_pods(had + nodes)
        self._note(f"a job of {nodes} nodes: last pod, s after its apply", took, before)

    def memory(self, pods: int) -> None:
        """Resident memory with so many pods, all of them running."""
        had, number = self._pods(), 0
        while had < pods:
            nodes = min(pods - had, 344)
            self.client.create("rollplexjobs", make_job(f"more-{number}", nodes))
            had, number = had + nodes, number + 1
        self._until_pods(pods)
        wait_for("all pods run", lambda: sum(pod.up for pod in self.kubelet.pods(NAMESPACE)) >= pods, 300.0, every=1.0)
        time.sleep(20.0)  # two readings of progress
        self.result.figures[f"memory with {pods:,} pods, MB"] = self.operator.memory() / 1e6

    def idle(self, seconds: float) -> None:
        """What it does when nothing changes."""
        before, written = self.requests(), len(self.plane.writes(self.operator.user))
        share = self.operator.share_of_core(seconds)
        self.result.figures[f"idle {seconds:g} s: writes"] = len(self.plane.writes(self.operator.user)) - written
        self._note(f"idle {seconds:g} s: CPU, % of a core", 100 * share, before)

    def requests(self) -> Counter[str]:
        """The API server's own counts, of all clients, watches left out."""
        counts: Counter[str] = Counter()
        for line in self.client.request("GET", "/metrics")["text"].splitlines():
            if (match := _COUNT.match(line)) is not None:
                labels = dict(_LABEL.findall(line))
                if labels["verb"] != "WATCH" and labels["resource"]:
                    part = f"/{labels['subresource']}" if labels["subresource"] else ""
                    counts[f"{labels['verb']} {labels['resource']}{part}"] += int(float(match[1]))
        return counts

    def _note(self, name: str, value: float, before: Counter[str]) -> None:
        self.result.figures[name] = value
        self.result.requests[name.partition(":")[0]] = dict((self.requests() - before).most_common(12))

    def _pods(self) -> int:
        """Pods that the operator created, by the server's audit log."""
        writes = self.plane.writes(self.operator.user)
        return sum(
            write["verb"] == "create"
            and write["objectRef"]["resource"] == "pods"
            and "dryRun" not in write["requestURI"]
            for write in writes
        )

    def _until_pods(self, count: int) -> float:
        began = time.monotonic()
        wait_for(f"{count} pods", lambda: self._pods() >= count, 300.0, every=0.5)
        return time.monotonic() - began


def run() -> Result:
    """All parts, on a control plane of its own."""
    with ControlPlane() as plane, FakeKubelet(plane) as kubelet:
        kubelet.add_nodes("node", 64)
        make_namespace(plane, NAMESPACE)
        with Operator(plane) as operator:
            bench = Bench(plane, kubelet, operator)
            bench.many(200, 4)
            bench.large(512)
            bench.memory(2000)
            bench.idle(60.0)
            return bench.result


def table(result: Result) -> str:
    """As Markdown."""
    lines = [
        f"On {result.cores} cores, shared with etcd, API server, controllers, scheduler and the played kubelets.",
        "",
    ]
    lines += ["| figure | value | limit |", "| --- | ---: | ---: |"]
    lines += [f"| {name} | {value:.1f} | {LIMITS[name]:g} |" for name, value in result.figures.items()]
    for part, counts in result.requests.items():
        lines += ["", f"Requests that the API server counted, {part}: "]
        lines[-1] += ", ".join(f"{count} {call}" for call, count in counts.items())
    return "\n".join(lines)


def main() -> None:
    """Run, print, write; exit status 1 where a limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    given = parser.parse_args()
    result = run()
    print(table(result))
    if given.json is not None:
        shown: dict[str, Any] = asdict(result)
        given.json.write_text(json.dumps(shown, indent=2) + "\n")
    sys.exit(any(value > LIMITS[name] for name, value in result.figures.items()))


if __name__ == "__main__":
    main()
