"""Error form and request ids of every answer."""

import asyncio
import json

import pytest
from aiohttp import test_utils, web

from firsttoken_api import errors
from firsttoken_runtime.server import app as server_app
from firsttoken_runtime.server import http


async def _raw(sent: bytes, handler=None) -> tuple[str, dict[str, str], dict]:
    """Status line, headers and JSON body of the answer to these bytes on a connection of their own."""
    app = http.application()
    app.router.add_post("/x", handler or _length)
    listener = await server_app.listen(app, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(sent)
    async with asyncio.timeout(5):
        answer = (await reader.read()).decode()
    writer.close()
    await listener.close()
    head, _, body = answer.partition("\r\n\r\n")
    first, *lines = head.split("\r\n")
    return first, dict(line.split(": ", 1) for line in lines), json.loads(body)


async def _length(request: web.Request) -> web.Response:
    return http.json_response({"length": len(await http.read_body(request))})


@pytest.mark.parametrize(
    "sent",
    [
        b"GARBAGE\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        b"POST /x HTTP/9.9\r\nHost: a\r\n\r\n",
        b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n",
        b"POST /x HTTP/1.1\r\nHost: a\r\nBad header: 1\r\n\r\n",
        b"POST /" + b"x" * 9000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    ],
)
async def test_what_is_not_http_is_answered_in_our_form(sent, caplog):
    first, headers, body = await _raw(sent)
    assert " 400 " in first
    assert headers["Content-Type"] == "application/json"
    assert len(headers["X-Request-Id"]) == 32
    assert errors.is_error_body(body)
    assert body["error"]["type"] == "invalid_request_error"
    assert len(body["error"]["message"]) < 300
    assert "xxxx" not in body["error"]["message"]
    assert not [one for one in caplog.records if one.levelname == "ERROR"]


async def test_a_broken_handler_is_our_mistake_in_our_form(caplog):
    async def broken(_: web.Request) -> web.Response:
        raise RuntimeError("secret")

    sent = b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
    first, headers, body = await _raw(sent, broken)
    assert " 500 " in first
    assert headers["Connection"] == "close"
    assert body["error"]["code"] == "internal_error"
    assert "secret" not in body["error"]["message"]
    assert "secret" in caplog.text


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
