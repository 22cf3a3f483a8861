"""Error form and request ids of every answer."""

import pytest
from aiohttp import test_utils, web

from firsttoken_api import errors
from firsttoken_runtime.server import http


async def _client(handler) -> test_utils.TestClient:
    app = http.application()
    app.router.add_get("/x", handler)
    client = test_utils.TestClient(test_utils.TestServer(app))
    await client.start_server()
    return client


async def test_our_errors_carry_status_headers_and_body():
    async def refuse(_: web.Request) -> web.Response:
        raise errors.TooManyRequestsError("later", retry_after_s=7)

    client = await _client(refuse)
    response = await client.get("/x")
    assert (response.status, response.headers["Retry-After"]) == (429, "7")
    assert (await response.json())["error"]["type"] == "rate_limit_error"
    response = await client.post("/x")
    assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")
    response = await client.get("/" + "y" * 1000)
    assert response.status == 404
    assert len(await response.text()) < 500
    await client.close()


@pytest.mark.parametrize(
    ("asked", "is_echoed"),
    [("abc-1", True), ("x" * 128, True), ("x" * 129, False), ("a b", False), ("", False)],
)
async def test_only_plain_request_ids_are_echoed(asked, is_echoed):
    async def answer(_: web.Request) -> web.Response:
        return http.json_response({})

    client = await _client(answer)
    response = await client.get("/x", headers={"X-Request-Id": asked})
    assert (response.headers["X-Request-Id"] == asked) is is_echoed
    await client.close()
