"""What makes the process not alive, and what it answers."""

from __future__ import annotations

import asyncio

import aiohttp
from prometheus_client import CollectorRegistry, Gauge

from rollplex_operator.health import Health, Limits, faults

LIMITS = Limits(watch=180.0, queue=300.0)


def test_faults_none_within_the_limits() -> None:
    assert list(faults([("pods", "", 180.0)], 300.0, LIMITS)) == []


def test_faults_name_the_watch_its_age_and_the_limit() -> None:
    found = list(faults([("pods", "team", 181.0), ("services", "", 0.0)], 301.0, LIMITS))
    assert found == [
        "pods in team: no event and no bookmark for 181 s (limit 180 s)",
        "the oldest job in the queue has waited for 301 s (limit 300 s)",
    ]


def test_health_answers() -> None:
    wrong: list[str] = []
    waiting = "waiting for the first lists"
    registry = CollectorRegistry()
    Gauge("jobs", "Jobs.", registry=registry).set(3)

    async def main() -> None:
        health = Health(lambda: wrong, lambda: waiting, registry, port=0)
        await health.start()
        try:
            async with aiohttp.ClientSession(f"http://127.0.0.1:{health.port}") as session:

                async def get(path: str) -> tuple[int, str]:
                    async with session.get(path) as reply:
                        return reply.status, await reply.text()

                assert await get("/healthz") == (200, "ok")
                assert await get("/readyz") == (503, waiting)
                wrong.append("pods: silent")
                assert await get("/healthz") == (503, "pods: silent")
                assert "jobs 3.0" in (await get("/metrics"))[1]
        finally:
            await health.stop()

    asyncio.run(main())
