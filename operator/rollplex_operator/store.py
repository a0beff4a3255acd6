"""What the operator knows of the cluster: projections of its jobs and of what belongs to them, by job.

Everything that the server tells, by a watch or in reply to a write, is put here at once, and an older version never
replaces a newer one. So a write that was answered is always visible to the next decision, and a reply that comes after
the watch's news of the same object changes nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from rollplex_operator.names import LABEL_JOB
from rollplex_operator.observation import ChildView, JobView, PodView
from rollplex_operator.projections import child_view, job_view, pod_view
from rollplex_operator.resources import JOBS, PODS, Resource

REMEMBERED_DELETIONS = 4096


class Key(NamedTuple):
    """Of a job."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Entry(NamedTuple):
    """An object: which job it belongs to, its version, and what is kept of it."""

    resource: Resource
    key: Key
    version: int
    view: JobView | PodView | ChildView


class Family:
    """The objects of one job's name, by uid."""

    __slots__ = ("children", "gone", "jobs", "pods")

    def __init__(self) -> None:
        self.jobs: dict[str, JobView] = {}
        self.pods: dict[str, PodView] = {}
        self.children: dict[str, ChildView] = {}
        self.gone: dict[str, PodView] = {}

    def put(self, view: JobView | PodView | ChildView) -> None:
        """One more, or a newer version of it."""
        if isinstance(view, PodView):
            self.pods[view.uid] = view
        elif isinstance(view, JobView):
            self.jobs[view.uid] = view
        else:
            self.children[view.uid] = view

    def drop(self, uid: str) -> bool:
        """Whether any is left. A pod that is no more is kept as it was: why it went is in it."""
        if uid in self.pods:
            self.gone[uid] = self.pods[uid]
        for views in (self.jobs, self.pods, self.children):
            views.pop(uid, None)
        return bool(self.jobs or self.pods or self.children)


_NOTHING = Family()


class Store:
    """``changed(key)`` is called when something of a job changed that a decision could depend on."""

    def __init__(self, changed: Callable[[Key], None]) -> None:
        self._changed = changed
        self._entries: dict[str, Entry] = {}  # by uid
        self._families: dict[Key, Family] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()  # uids of deleted objects: late replies do not revive them

    def put(self, resource: Resource, body: Mapping[str, Any]) -> None:
        """An object as the server has it now. What does not belong to a job is ignored."""
        key, uid = _key(resource, body), body["metadata"]["uid"]
        if uid in self._gone:
            return
        if key is None:  # not ours, or its label was taken away
            self._drop(uid)
            return
        version = _version(body["metadata"].get("resourceVersion"))
        known = self._entries.get(uid)
        if known is not None and version <= known.version:
            return
        view: JobView | PodView | ChildView
        if resource is JOBS:
            view = job_view(body)
        elif resource is PODS:
            view = pod_view(body)
        else:
            view = child_view(body)
        if known is not None and known.key != key:
            self._drop(uid)
        self._entries[uid] = Entry(resource, key, version, view)
        self._families.setdefault(key, Family()).put(view)
        if known is None or known.view != view or known.key != key:
            self._changed(key)

    def remove(self, uid: str) -> None:
        """The server has it no more."""
        self._gone[uid] = None
        while len(self._gone) > REMEMBERED_DELETIONS:
            self._gone.popitem(last=False)
        self._drop(uid)

    def retain(self, resource: Resource, namespace: str | None, uids: Collection[str], version: str) -> None:
        """A whole list of this ``version`` has only these: what is older than it and not among them is gone."""
        limit = _version(version)
        gone = [
            uid
            for uid, entry in self._entries.items()
            if entry.resource is resource
            and namespace in (None, entry.key.namespace)
            and uid not in uids
            and entry.version <= limit
        ]
        for uid in gone:
            self.remove(uid)

    def job(self, key: Key) -> JobView | None:
        """The job of this name; of two, the newer: the older one's deletion was not told yet."""
        jobs = self._families.get(key, _NOTHING).jobs.values()
        return max(jobs, key=lambda job: _version(job.resource_version), default=None)

    def pods(self, key: Key) -> tuple[PodView, ...]:
        """Pods that carry the job's name, by name."""
        return tuple(sorted(self._families.get(key, _NOTHING).pods.values(), key=lambda pod: (pod.name, pod.uid)))

    def gone(self, key: Key) -> tuple[PodView, ...]:
        """Pods that went since :meth:`forget`, as they were last seen."""
        return tuple(self._families.get(key, _NOTHING).gone.values())

    def forget(self, key: Key, gone: Iterable[PodView]) -> None:
        """A decision that was carried out has taken notice of these."""
        family = self._families.get(key, _NOTHING)
        for pod in gone:
            family.gone.pop(pod.uid, None)

    def children(self, key: Key) -> tuple[ChildView, ...]:
        """Other objects that carry the job's name, by kind and name."""
        views = self._families.get(key, _NOTHING).children.values()
        return tuple(sorted(views, key=lambda child: (child.kind, child.name, child.uid)))

    def head(self, key: Key, owner_uid: str) -> PodView | None:
        """Pod 0 of the newest attempt of the job of this uid."""
        pods = self._families.get(key, _NOTHING).pods.values()
        heads = (pod for pod in pods if pod.index == 0 and pod.owner_uid == owner_uid)
        return max(heads, key=lambda pod: pod.attempt, default=None)

    def resource(self, uid: str) -> Resource | None:
        """Which kind an object is of; None where it is not known."""
        entry = self._entries.get(uid)
        return None if entry is None else entry.resource

    def jobs(self) -> Iterator[tuple[Key, JobView]]:
        """All jobs."""
        for key in list(self._families):
            job = self.job(key)
            if job is not None:
                yield key, job

    def _drop(self, uid: str) -> None:
        entry = self._entries.pop(uid, None)
        if entry is None:
            return
        if not self._families[entry.key].drop(uid):
            del self._families[entry.key]
        self._changed(entry.key)


def _key(resource: Resource, body: Mapping[str, Any]) -> Key | None:
    metadata = body["metadata"]
    name = metadata["name"] if resource is JOBS else metadata.get("labels", {}).get(LABEL_JOB)
    return Key(metadata["namespace"], name) if name else None


def _version(text: str | None) -> int:
    """Resource versions of one kind compare as numbers (Kubernetes 1.35 made that its promise)."""
    return int(text) if text else 0
