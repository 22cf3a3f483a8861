"""Answers that the sidecar gives itself, in the same form as the server's."""

import json
from collections.abc import Awaitable, Callable

from aiohttp import web

from firsttoken_api import errors

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def response(error: errors.ApiError, *, close: bool = False) -> web.Response:
    """The error as an HTTP answer. `close`: the connection ends with it."""
    answer = web.Response(
        status=error.status, body=encoded(error), headers=error.headers(), content_type="application/json"
    )
    if close:
        answer.force_close()
    return answer


def encoded(error: errors.ApiError) -> bytes:
    """The error's body as JSON without line ends, fit for an SSE event."""
    return json.dumps(error.body()).encode()


@web.middleware
async def openai_form(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Gives the HTTP library's own refusals (no such path, wrong method) the same form."""
    try:
        return await handler(request)
    except web.HTTPException as refusal:
        code = refusal.reason.lower().replace(" ", "_")
        body = errors.BadRequestError(refusal.reason, code=code).body()
        headers = {name: value for name, value in refusal.headers.items() if name == "Allow"}
        return web.json_response(body, status=refusal.status, headers=headers)
