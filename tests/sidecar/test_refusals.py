import json

from aiohttp import web

from firsttoken_api import errors
from firsttoken_sidecar import connections, metrics, refusals, servers
from sidecar import fakes


def test_an_error_keeps_its_status_form_and_headers() -> None:
    answer = refusals.response(errors.DrainingError("leaving"))
    assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
    assert answer.content_type == "application/json"
    assert isinstance(answer.body, bytes)
    assert errors.is_error_body(json.loads(answer.body))
    assert answer.keep_alive is None
    assert refusals.response(errors.DrainingError("x"), close=True).keep_alive is False


def test_an_encoded_error_fits_one_line() -> None:
    assert b"\n" not in refusals.encoded(errors.BadRequestError("two\nlines"))


async def test_the_librarys_refusals_get_the_form() -> None:
    async def hello(request: web.Request) -> web.Response:
        return web.Response(text="hello")

    application = web.Application(middlewares=[refusals.openai_form])
    application.router.add_get("/hello", hello)
    server = await servers.start(
        application, "test", fakes.LOOPBACK, 0, connections.Connections(metrics.Counts())
    )
    async with fakes.session() as client:
        base = f"http://{fakes.LOOPBACK}:{server.port}"
        async with client.get(f"{base}/hello") as response:
            assert await response.text() == "hello"
        async with client.get(f"{base}/bye") as response:
            assert response.status == 404
            assert errors.is_error_body(await response.json())
        async with client.post(f"{base}/hello") as response:
            assert (response.status, response.headers["Allow"]) == (405, "GET,HEAD")
            assert (await response.json())["error"]["code"] == "method_not_allowed"
    await server.close()
