"""One writer at a time: a Lease, as Kubernetes' own controllers hold one.

A leader renews every 2 s and gives up when it could not for 10 s; others take over when they saw no renewal for 15 s.
In the 5 s between, a request that the old leader sent last has ended: ``fence`` lets none begin after the 10 s, nor
last beyond the 15 s. Only durations are compared, each on one machine's clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from rollplex_operator.kube import ApiError, FencedError, Kube, UnansweredError
from rollplex_operator.resources import Resource

LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", selector="")
DURATION = 15.0  # seconds
RENEW_DEADLINE = 10.0
RETRY = 2.0

_log = logging.getLogger(__name__)


class LostError(Exception):
    """Another process may lead."""


class Leader:
    """``identity`` is this process's, different from every other's. ``seen``: the lease could be read or made."""

    def __init__(
        self, kube: Kube, namespace: str, name: str, identity: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._kube, self._namespace, self._name, self._identity, self._clock = kube, namespace, name, identity, clock
        self.seen = False
        self._lease: dict[str, Any] | None = None
        self._observed = 0.0  # when this version of another's lease was seen first
        self._renewed: float | None = None  # when the last renewal that was granted was sent

    @property
    def leading(self) -> bool:
        """Whether this process may write."""
        return self.fence() > 0

    def fence(self) -> float:
        """Seconds that a write may last which begins now; 0 or less: it must not begin."""
        if self._renewed is None:
            return 0.0
        age = self._clock() - self._renewed
        return DURATION - age if age < RENEW_DEADLINE else 0.0

    async def acquire(self) -> None:
        """Wait until this process leads."""
        while not await self._try():
            await asyncio.sleep(RETRY)
        _log.info("leading", extra={"lease": f"{self._namespace}/{self._name}", "identity": self._identity})

    async def hold(self) -> None:
        """Renew for ever.

        Raises:
            LostError: the lease is another's, or could not be renewed in time.
        """
        while self.leading:
            await asyncio.sleep(RETRY)
            if not await self._try() and self._holder() != self._identity:
                self._renewed = None
                raise LostError(f"{self._holder() or 'nobody'} holds the lease")
        self._renewed = None
        raise LostError(f"the lease could not be renewed for {RENEW_DEADLINE:g} s")

    async def release(self) -> None:
        """Let another lead at once. All writes have ended before."""
        if self._lease is None or not self.leading:
            return
        with contextlib.suppress(ApiError, UnansweredError, FencedError):
            await self._write("", 1)
        self._renewed = None

    async def _try(self) -> bool:
        """Take or renew the lease; False where it is another's, or the server did not say."""
        now = self._clock()
        try:
            if self._lease is None:
                await self._read()
            if self._lease is not None and self._holder() not in ("", self._identity):
                # another leader shows life by a new version; only then its time begins anew
                version = self._lease["metadata"]["resourceVersion"]
                await self._read()
                if self._lease is None or self._lease["metadata"]["resourceVersion"] != version:
                    self._observed = now
                if self._holder() not in ("", self._identity) and now < self._observed + self._duration():
                    return False
            await self._write(self._identity, int(DURATION))
        except (ApiError, UnansweredError) as error:
            if isinstance(error, ApiError) and error.code in (404, 409):
                self._lease = None  # somebody was faster
                with contextlib.suppress(ApiError, UnansweredError):
                    await self._read()
            else:
                _log.warning("lease: %s", error)
            return False
        self._renewed = now
        return True

    async def _read(self) -> None:
        known = self._lease
        try:
            self._lease = await self._kube.get(LEASES.path(self._namespace, self._name))
        except ApiError as error:
            if error.code != 404:
                raise
            self._lease = None
        self.seen = True
        if known is None:
            self._observed = self._clock()

    async def _write(self, holder: str, duration: int) -> None:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        spec = dict(self._lease["spec"]) if self._lease is not None else {}
        if spec.get("holderIdentity") != holder:
            spec |= {"acquireTime": now, "leaseTransitions": spec.get("leaseTransitions", -1) + 1}
        spec |= {"holderIdentity": holder, "leaseDurationSeconds": duration, "renewTime": now}
        metadata = {"name": self._name, "namespace": self._namespace}
        body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}
        if self._lease is None:
            self._lease = await self._kube.claim("POST", LEASES.path(self._namespace), body, RENEW_DEADLINE / 2)
        else:
            body["metadata"] = {**metadata, "resourceVersion": self._lease["metadata"]["resourceVersion"]}
            path = LEASES.path(self._namespace, self._name)
            self._lease = await self._kube.claim("PUT", path, body, RENEW_DEADLINE / 2)
        self.seen = True

    def _holder(self) -> str:
        return str((self._lease or {}).get("spec", {}).get("holderIdentity") or "")

    def _duration(self) -> float:
        return float((self._lease or {}).get("spec", {}).get("leaseDurationSeconds") or DURATION)
