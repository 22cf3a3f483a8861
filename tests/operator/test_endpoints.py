"""Health and metrics over loopback."""

import socket

import aiohttp
from prometheus_client import CollectorRegistry

from firsttoken_operator import endpoints, metrics


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_health_says_what_is_wrong_and_metrics_are_fresh() -> None:
    counters = metrics.Metrics(CollectorRegistry())
    health, exposition = free_port(), free_port()
    problem = ""

    def collect() -> None:
        counters.queue_depth.set(7)

    async with (
        endpoints.serving(counters, health, exposition, lambda: problem, collect, host="127.0.0.1"),
        aiohttp.ClientSession() as session,
    ):

        async def get(port: int, path: str) -> tuple[int, str]:
            async with session.get(f"http://127.0.0.1:{port}{path}") as response:
                return response.status, await response.text()

        assert await get(health, "/livez") == (200, "ok\n")
        assert await get(health, "/readyz") == (200, "ok\n")
        problem = "the watch of pods is stale"
        assert await get(health, "/livez") == (503, "the watch of pods is stale\n")
        assert (await get(health, "/readyz"))[0] == 200
        status, text = await get(exposition, "/metrics")
        assert status == 200
        assert "firsttoken_operator_queue_depth 7.0" in text
