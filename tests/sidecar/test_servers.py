import asyncio

from aiohttp import web

from firsttoken_sidecar import connections, metrics, servers
from sidecar import fakes


async def test_a_server_knows_its_port_and_its_connections() -> None:
    async def hello(request: web.Request) -> web.Response:
        return web.Response(body=await request.read())

    application = web.Application()
    application.router.add_post("/", hello)
    server = await servers.start(
        application, "test", fakes.LOOPBACK, 0, connections.Connections(metrics.Counts())
    )
    assert server.port > 0
    assert len(server.connections) == 0
    async with fakes.raw(server.port) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc")
        assert await reader.readuntil(b"abc"), "not decoded on the way"
        assert len(server.connections) == 1
        await server.close()
        assert await reader.read() == b""
        writer.close()
        assert len(server.connections) == 0


async def test_a_client_that_leaves_cancels_the_handler() -> None:
    is_there, was_cancelled = asyncio.Event(), asyncio.Event()

    async def wait(request: web.Request) -> web.Response:
        is_there.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            was_cancelled.set()
            raise
        return web.Response()

    application = web.Application()
    application.router.add_get("/", wait)
    server = await servers.start(
        application, "test", fakes.LOOPBACK, 0, connections.Connections(metrics.Counts())
    )
    async with fakes.raw(server.port) as (_, writer):
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.wait_for(is_there.wait(), 1)
        writer.close()
        await asyncio.wait_for(was_cancelled.wait(), 1)
        await server.close()
