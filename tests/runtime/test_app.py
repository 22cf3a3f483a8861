"""Which endpoints are on which port, and ports that cannot be had."""

import pytest
from aiohttp import web

from firsttoken_runtime.server import app, http
from firsttoken_runtime.server.engine_client import EngineClient
from firsttoken_runtime.server.metrics import Metrics
from firsttoken_runtime.server.service import Service
from runtime.fake_engine import Script


def _paths(application: web.Application) -> set[tuple[str, str]]:
    return {
        (route.method, route.resource.canonical) for route in application.router.routes() if route.resource
    }


async def test_the_write_is_only_on_the_ops_port():
    service = Service("fake", EngineClient(Script().settings()), Metrics("fake"))
    alone = _paths(app.api_application(service, with_ops=False))
    together = _paths(app.api_application(service, with_ops=True))
    ops = _paths(app.ops_application(service))
    reads = {("GET", path) for path in ("/livez", "/readyz", "/metrics", "/state")}
    assert reads <= together
    assert not reads & alone
    assert ("PUT", "/flags") in ops - together
    assert ("POST", "/v1/chat/completions") in alone & together
    await service.close()


async def test_a_taken_port_is_said_plainly():
    first = await app.listen(http.application(), "127.0.0.1", 0)
    with pytest.raises(app.PortTakenError) as caught:
        await app.listen(http.application(), "127.0.0.1", first.port)
    assert caught.value.port == first.port
    assert str(caught.value) == f"cannot listen on 127.0.0.1:{first.port}: address already in use"
    await first.close()


async def test_an_address_of_another_machine_is_said_plainly():
    with pytest.raises(app.AddressError, match=r"203\.0\.113\.1 is not an address of this machine"):
        await app.listen(http.application(), "203.0.113.1", 0)
