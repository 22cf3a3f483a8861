"""The adapter of our own engine: its ops port."""

import json
from collections.abc import Mapping

import aiohttp
from pydantic import ValidationError
from yarl import URL

from firsttoken_api.state import EngineState, FlagsState
from firsttoken_sidecar import asking, engines
from firsttoken_sidecar.engines import EngineUnreachableError, FlagsRefusedError, Probe

FLAGS_TIMEOUT_S = 15.0
"""The engine switches at a step boundary and answers within 10 s."""


class FirsttokenEngine:
    """Our own engine. The session is lent: whoever made it closes it."""

    def __init__(self, session: aiohttp.ClientSession, api_url: URL, ops_url: URL) -> None:
        self._session = session
        self._api_url = api_url
        self._ops_url = ops_url

    @property
    def api_url(self) -> URL:
        return self._api_url

    async def probe(self) -> Probe:
        status, body = await self._ask("GET", "/livez", engines.PROBE_TIMEOUT_S)
        is_live = status == 200
        reason = (
            ""
            if is_live
            else asking.shortened(body.decode(errors="replace").strip() or f"/livez answered {status}")
        )
        status, body = await self._ask("GET", "/state", engines.PROBE_TIMEOUT_S)
        if status != 200:
            return Probe(is_live, reason, None)
        try:
            return Probe(is_live, reason, EngineState.model_validate_json(body))
        except ValidationError as error:
            raise EngineUnreachableError(
                f"/state of the engine is not understood: {asking.first_line(error)}"
            ) from error

    async def apply_flags(self, document: bytes) -> FlagsState:
        status, body = await self._ask("PUT", "/flags", FLAGS_TIMEOUT_S, document)
        if status == 400:
            raise FlagsRefusedError(_error_message(body))
        if status != 200:
            raise EngineUnreachableError(f"PUT /flags answered {status}: {_error_message(body)}")
        try:
            return FlagsState.model_validate_json(body)
        except ValidationError as error:
            raise EngineUnreachableError(
                f"answer to PUT /flags is not understood: {asking.first_line(error)}"
            ) from error

    async def metrics(self) -> bytes:
        status, body = await self._ask("GET", "/metrics", engines.METRICS_TIMEOUT_S)
        if status != 200:
            raise EngineUnreachableError(f"/metrics of the engine answered {status}")
        return body

    async def estimate(self, body: bytes, headers: Mapping[str, str], timeout_s: float) -> bytes | None:
        status, answer = await self._ask("POST", "/estimate", timeout_s, body, headers)
        if status == 404:
            return None  # an engine of an earlier version
        if status != 200:
            raise EngineUnreachableError(f"POST /estimate answered {status}: {_error_message(answer)}")
        return answer

    def body_for(self, body: bytes, priority: int, tenant: str) -> bytes:
        """As it is: our engine knows class and tenant by the request's headers."""
        return body

    async def _ask(
        self,
        method: str,
        path: str,
        timeout_s: float,
        document: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        return await asking.ask(
            self._session, method, self._ops_url.with_path(path), timeout_s, document, headers
        )


def _error_message(body: bytes) -> str:
    """The message of an OpenAI error body, else the start of whatever it is."""
    text = body.decode(errors="replace").strip()
    try:
        message = json.loads(text)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = text
    return asking.shortened(str(message))
