"""The operator's Prometheus metrics, read from the store when they are scraped: none is stale, none is left over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rollplex_operator.kube import Kube
from rollplex_operator.names import Phase
from rollplex_operator.reconcile import Reconciler
from rollplex_operator.watching import Watching


class OperatorCollector(Collector):
    """Of one process; ``leading()`` says whether it is the one that writes."""

    def __init__(self, kube: Kube, reconciler: Reconciler, watching: Watching, leading: Callable[[], bool]) -> None:
        self._kube, self._reconciler, self._watching, self._leading = kube, reconciler, watching, leading

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        yield from self._jobs()
        queue, counts = self._reconciler.queue, self._reconciler.counts
        yield GaugeMetricFamily("rollplex_operator_leading", "1 if this process writes.", value=self._leading())
        yield GaugeMetricFamily("rollplex_operator_queue_keys", "Jobs that wait to be looked at.", value=len(queue))
        yield GaugeMetricFamily(
            "rollplex_operator_queue_oldest_seconds", "How long the oldest of them is due.", value=queue.oldest()
        )
        yield CounterMetricFamily("rollplex_operator_reconciles", "Jobs looked at.", value=counts.decisions)
        yield CounterMetricFamily(
            "rollplex_operator_reconcile_errors", "Looks that an error ended.", value=counts.errors
        )
        yield CounterMetricFamily(
            "rollplex_operator_reconcile_seconds", "Seconds spent looking at jobs.", value=counts.seconds
        )
        ages = GaugeMetricFamily(
            "rollplex_operator_watch_age_seconds",
            "Since the last event or bookmark of a watch.",
            labels=("resource", "namespace"),
        )
        for resource, namespace, age in self._watching.ages():
            ages.add_metric((resource, namespace), age)
        yield ages
        requests = CounterMetricFamily(
            "rollplex_operator_requests",
            "Requests to the API server, watches not counted; code 0: no answer.",
            labels=("verb", "resource", "code"),
        )
        for (verb, resource, code), count in sorted(self._kube.requests.items()):
            requests.add_metric((verb, resource, str(code)), count)
        yield requests

    def _jobs(self) -> Iterator[Metric]:
        phases: Counter[tuple[str, str]] = Counter()
        restarts = GaugeMetricFamily("rollplex_job_restarts", "Restarts of all kinds.", labels=("namespace", "job"))
        steps = GaugeMetricFamily("rollplex_job_step", "Last committed step.", labels=("namespace", "job"))
        for key, job in self._reconciler.store.jobs():
            phases[key.namespace, job.status.get("phase") or Phase.PENDING] += 1
            restarts.add_metric(key, job.status.get("restarts") or 0)
            if job.status.get("step") is not None:
                steps.add_metric(key, job.status["step"])
        jobs = GaugeMetricFamily("rollplex_jobs", "Jobs by phase.", labels=("namespace", "phase"))
        for namespace in sorted({namespace for namespace, _ in phases}):
            for phase in Phase:
                jobs.add_metric((namespace, phase), phases[namespace, phase])
        yield from (jobs, restarts, steps)


def make_registry(collector: OperatorCollector) -> CollectorRegistry:
    """With the process's own memory and CPU."""
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    return registry
