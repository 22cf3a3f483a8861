"""What every answer has in common: OpenAI's error form and the echoed request id."""

import asyncio
import re
import uuid
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from firsttoken_api import errors, names
from firsttoken_runtime.server.connections import IdleConnections

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

MAX_BODY_BYTES = 4 * 2**20
BODY_TIMEOUT_S = 60.0
"""For the whole body: whoever sends it slower holds a handler for nothing."""
REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")


def json_response(body: object, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(body), status=status, headers=headers, content_type="application/json"
    )


def error_response(error: errors.ApiError) -> web.Response:
    return json_response(error.body(), error.status, error.headers())


@web.middleware
async def errors_in_openai_form(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except errors.ApiError as error:
        return error_response(error)
    except web.HTTPNotFound:
        return error_response(errors.UnknownRouteError(f"no such path: {request.path[:256]}"))
    except web.HTTPMethodNotAllowed as refusal:
        allowed = ", ".join(sorted(refusal.allowed_methods))
        wrong = errors.BadRequestError(f"{request.method} is not allowed here; allowed: {allowed}")
        return json_response(wrong.body(), refusal.status, {"Allow": allowed})


async def read_body(request: web.Request) -> bytes:
    """Raises RequestTooLargeError, RequestTimeoutError, or BadRequestError if it cannot be decompressed."""
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            return await request.read()
    except TimeoutError as error:
        raise errors.RequestTimeoutError(f"the body did not arrive within {BODY_TIMEOUT_S:.0f} s") from error
    except web.HTTPRequestEntityTooLarge as error:
        raise errors.RequestTooLargeError(f"the body is larger than {MAX_BODY_BYTES // 2**20} MiB") from error
    except web.RequestPayloadError as error:
        raise errors.BadRequestError("the body is not what its Content-Encoding says") from error


async def echo_request_id(request: web.Request, response: web.StreamResponse) -> None:
    """A request without a usable id gets one, so that a log line can be found from the client's side."""
    asked = request.headers.get(names.HEADER_REQUEST_ID, "")
    request_id = asked if REQUEST_ID.fullmatch(asked) else uuid.uuid4().hex
    response.headers[names.HEADER_REQUEST_ID] = request_id


CONNECTIONS = web.AppKey("connections", IdleConnections)


def application() -> web.Application:
    """An empty application with all of it; `app[CONNECTIONS]` is for whoever serves it."""
    connections = IdleConnections()
    app = web.Application(
        middlewares=[connections.middleware, errors_in_openai_form], client_max_size=MAX_BODY_BYTES
    )
    app[CONNECTIONS] = connections
    app.on_response_prepare.append(echo_request_id)
    return app
