"""Carries out a decision: the status first, then deletes, applies, creates, notes.

Each step begins only if the one before was accepted as a whole. What the server answers goes into the store at once.
Pods are created in batches of 1, 2, 4, ... so that a quota or an admission policy that refuses them all is asked once,
not once for each pod of the job.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rollplex_operator import resources
from rollplex_operator.decision import Decision, Delete, Manifest, Note
from rollplex_operator.kube import PARALLEL_WRITES, ApiError, Kube
from rollplex_operator.names import FIELD_MANAGER
from rollplex_operator.observation import JobView, Refusal
from rollplex_operator.projections import child_view
from rollplex_operator.resources import JOBS, PODS, Resource
from rollplex_operator.store import Key, Store
from rollplex_operator.times import timestamp

EVENTS = Resource("", "v1", "events", "Event", selector="")
LARGEST_NOTE = 1024  # characters of an event's message, a bound of the server

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Refusals:
    """Of one job, by kind and name, since the server last took that object."""

    uid: str
    by_object: dict[tuple[str, str], Refusal] = field(default_factory=dict)

    def add(self, kind: str, name: str, error: ApiError, now: float) -> None:
        """One more."""
        known = self.by_object.get((kind, name))
        count = known.count + 1 if known else 1
        self.by_object[kind, name] = Refusal(kind, name, error.code, error.reason, error.message, count, now)

    def clear(self, kind: str, name: str) -> None:
        """The server took it."""
        self.by_object.pop((kind, name), None)


@dataclass(slots=True)
class Outcome:
    """What became of a decision. ``accepted``: all of it. ``wait``: seconds to leave the server alone, at least."""

    accepted: bool = True
    wait: float = 0.0

    def refuse(self, error: ApiError) -> None:
        """Something was not taken."""
        self.accepted = False
        self.wait = max(self.wait, error.retry_after)


class Writer:
    """Writes for jobs; ``wall`` is the time that refusals carry."""

    def __init__(self, kube: Kube, store: Store, wall: Callable[[], float] = time.time) -> None:
        self._kube, self._store, self._wall = kube, store, wall

    async def carry_out(self, job: JobView, decision: Decision, refusals: Refusals) -> Outcome:
        """Do what was decided for a job.

        Raises:
            UnansweredError: a request got no answer; what it did will show.
            FencedError: this process may not write any more.
        """
        outcome = Outcome()
        if decision.status is not None:
            await self._status(job, decision.status, refusals, outcome)
            if not outcome.accepted:
                return outcome
        try:
            await self._all(self._delete(job, each, outcome) for each in decision.delete)
            if outcome.accepted:
                await self._all(self._apply(job, each, refusals, outcome) for each in decision.apply)
            if outcome.accepted:
                await self._create_all(job, decision.create, refusals, outcome)
        finally:
            if decision.status is not None:
                await self._all(self._note(job, each) for each in decision.notes)
        return outcome

    async def _status(self, job: JobView, status: Mapping[str, Any], refusals: Refusals, outcome: Outcome) -> None:
        path = JOBS.path(job.namespace, job.name, "status")
        # uid and version: neither another job of this name nor an edit that the decision has not seen is written over
        metadata = {
            "name": job.name,
            "namespace": job.namespace,
            "uid": job.uid,
            "resourceVersion": job.resource_version,
        }
        body = {"apiVersion": JOBS.api_version, "kind": JOBS.kind, "metadata": metadata, "status": status}
        # the server wants the whole object, and takes the status of it only
        body["spec"] = job.document["spec"]
        try:
            self._store.put(JOBS, await self._kube.replace(path, body))
            refusals.clear(JOBS.kind, job.name)
        except ApiError as error:
            outcome.refuse(error)
            if error.code in (404, 409):
                await self._look(JOBS, job.namespace, job.name, job.uid)
            else:
                refusals.add(JOBS.kind, job.name, error, self._wall())

    async def _delete(self, job: JobView, each: Delete, outcome: Outcome) -> None:
        resource = self._store.resource(each.uid)
        if resource is None:
            return  # it went meanwhile
        try:
            reply = await self._kube.delete(resource.path(job.namespace, each.name), each.uid, each.grace_seconds)
        except ApiError as error:
            if error.code == 404:
                self._store.remove(each.uid)
            elif error.code == 409:
                await self._look(resource, job.namespace, each.name, each.uid)
            else:
                outcome.refuse(error)
                _log.warning("cannot delete %s %s: %s", each.kind, each.name, error)
            return
        if reply.get("kind") == resource.kind:
            self._store.put(resource, reply)
        else:
            self._store.remove(each.uid)

    async def _apply(self, job: JobView, manifest: Manifest, refusals: Refusals, outcome: Outcome) -> None:
        resource = resources.of(manifest)
        name = manifest["metadata"]["name"]
        try:
            await self._leave_others(job, resource, name)
            self._store.put(resource, await self._kube.apply(resource, job.namespace, manifest))
            refusals.clear(resource.kind, name)
        except ApiError as error:
            outcome.refuse(error)
            refusals.add(resource.kind, name, error, self._wall())

    async def _leave_others(self, job: JobView, resource: Resource, name: str) -> None:
        """An apply would make what somebody else created under this name the job's, and it would go with the job.

        Raises:
            ApiError: 409, as a creation gets it.
        """
        known = ((child.kind, child.name) for child in self._store.children(key_of(job)) if child.owner_uid == job.uid)
        if (resource.kind, name) in known:
            return
        try:
            body = await self._kube.get(resource.path(job.namespace, name))
        except ApiError as error:
            if error.code != 404:
                raise
            return
        if child_view(body).owner_uid != job.uid:
            way_out = "delete it, or create the job under another name"
            raise ApiError(409, "AlreadyExists", f"this name is taken by one that is not the job's; {way_out}")

    async def _create_all(
        self, job: JobView, manifests: Sequence[Manifest], refusals: Refusals, outcome: Outcome
    ) -> None:
        begin, size = 0, 1
        while begin < len(manifests) and outcome.accepted:
            batch = manifests[begin : begin + size]
            await self._all(self._create(job, each, refusals, outcome) for each in batch)
            begin, size = begin + size, min(2 * size, PARALLEL_WRITES)

    async def _create(self, job: JobView, manifest: Manifest, refusals: Refusals, outcome: Outcome) -> None:
        name = manifest["metadata"]["name"]
        try:
            self._store.put(PODS, await self._kube.create(PODS, job.namespace, manifest))
            refusals.clear(PODS.kind, name)
        except ApiError as error:
            outcome.refuse(error)
            # the name is taken: by a pod of ours, whose creation was not answered or whose end is not over, or by a
            # foreign one, which only a refusal tells
            if error.code != 409 or not await self._look(PODS, job.namespace, name, ""):
                refusals.add(PODS.kind, name, error, self._wall())

    async def _look(self, resource: Resource, namespace: str, name: str, uid: str) -> bool:
        """Put the object of this name into the store, and take the one of ``uid`` out if it is not that.

        Returns whether the store now knows what has the name, be it nothing.
        """
        try:
            body = await self._kube.get(resource.path(namespace, name))
        except ApiError as error:
            if error.code != 404:
                raise
            if uid:
                self._store.remove(uid)
            return True
        if uid and body["metadata"]["uid"] != uid:
            self._store.remove(uid)
        self._store.put(resource, body)
        return self._store.resource(body["metadata"]["uid"]) is not None

    async def _note(self, job: JobView, note: Note) -> None:
        now = timestamp(self._wall())
        about = "\n".join((job.uid, job.resource_version, note.reason, note.message))
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            # the same note of the same status has the same name: told twice, it is there once
            "metadata": {"name": f"{job.name}.{hashlib.sha256(about.encode()).hexdigest()[:16]}"},
            "involvedObject": {
                "apiVersion": JOBS.api_version,
                "kind": JOBS.kind,
                "namespace": job.namespace,
                "name": job.name,
                "uid": job.uid,
                "resourceVersion": job.resource_version,
            },
            "type": note.type,
            "reason": note.reason,
            "message": note.message[:LARGEST_NOTE],
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "source": {"component": FIELD_MANAGER},
            "reportingComponent": FIELD_MANAGER,
        }
        _log.info("%s: %s", note.reason, note.message)
        try:
            await self._kube.create(EVENTS, job.namespace, event)
        except ApiError as error:
            if error.code != 409:
                _log.warning("the event %s was not taken: %s", note.reason, error)

    async def _all(self, calls: Iterable[Awaitable[None]]) -> None:
        """Wait for all of them, then raise the first exception: none is left running."""
        results = await asyncio.gather(*calls, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result


def key_of(job: JobView) -> Key:
    """The store's key."""
    return Key(job.namespace, job.name)
