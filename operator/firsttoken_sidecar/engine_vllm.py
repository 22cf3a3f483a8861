"""The adapter of vLLM: its API server has health and metrics, and knows none of our settings.

vLLM opens its port once the model is loaded, so a port that nobody listens on means that it loads; how far it
is cannot be seen. Its optimizations are start arguments: what the pod was started with is in force, and a
document that asks for anything else is refused with the flag named. Objective, classes and routes of a
document concern the sidecar alone and are taken at once.
"""

import hashlib
import json
import secrets
from collections.abc import Callable, Iterable, Mapping

import aiohttp
from yarl import URL

from firsttoken_api.hot_settings import HotSettings
from firsttoken_api.state import EngineState, FlagsState, Phase
from firsttoken_sidecar import asking, engines, flag_rule, vllm_metrics, vllm_state
from firsttoken_sidecar.engines import EngineUnreachableError, FlagsRefusedError, Probe

LOADING_LIMIT_S = 3600.0
"""Nothing of vLLM's loading can be seen but its end; a large model from slow storage takes long."""


class VllmEngine:
    """One vLLM server. The session is lent: whoever made it closes it."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        api_url: URL,
        started_flags: Iterable[str],
        max_num_seqs: int,
        chunk_tokens: int,
        clock: Callable[[], float],
    ) -> None:
        """`started_flags`: the optimizations that its start arguments switch on."""
        self._session = session
        self._api_url = api_url
        self._flags = FlagsState(enabled=tuple(started_flags))
        self._known = (max_num_seqs, chunk_tokens)
        self._clock = clock
        self._secret = secrets.token_bytes(32)
        self._loading_since_s: float | None = clock()
        self._history = vllm_state.History(*self._known)

    @property
    def api_url(self) -> URL:
        return self._api_url

    async def probe(self) -> Probe:
        try:
            status, body = await self._get("/health", engines.PROBE_TIMEOUT_S)
        except asking.EngineRefusedConnectionError:
            return self._loading()
        if status != 200:
            said = asking.shortened(body.decode(errors="replace").strip())
            return Probe(False, f"/health of vLLM answered {status}{': ' if said else ''}{said}", None)
        if self._loading_since_s is not None:
            # A process that just came up knows no settings yet.
            self._history = vllm_state.History(*self._known, await self._max_model_len())
            self._flags = FlagsState(enabled=self._flags.enabled)
            self._loading_since_s = None
        try:
            self._history.add(vllm_metrics.read(await self.metrics(), self._clock()))
        except vllm_metrics.NotVllmError as error:
            raise EngineUnreachableError(f"/metrics of the engine is not understood: {error}") from error
        return Probe(True, "", self._history.state(self._flags))

    async def apply_flags(self, document: bytes) -> FlagsState:
        try:
            wanted = flag_rule.parse_document(document).settings
        except flag_rule.BadDocumentError as error:
            raise FlagsRefusedError(str(error)) from error
        self._check(wanted)
        self._flags = FlagsState(
            generation=wanted.generation, hash=wanted.content_hash(), enabled=self._flags.enabled
        )
        return self._flags

    async def metrics(self) -> bytes:
        status, body = await self._get("/metrics", engines.METRICS_TIMEOUT_S)
        if status != 200:
            raise EngineUnreachableError(f"/metrics of the engine answered {status}")
        return body

    async def estimate(self, body: bytes, headers: Mapping[str, str], timeout_s: float) -> bytes | None:
        """vLLM has nothing to ask: what is ahead is what this sidecar let in."""
        return None

    def body_for(self, body: bytes, priority: int, tenant: str) -> bytes:
        """With the tenant as cache salt, and with `priority` as vLLM orders requests: smaller is sooner.

        Both are appended, so they win over what the client wrote: its key and its class decide, not what a
        body says. What is no JSON object stays as it is, and vLLM says what is wrong with it.
        """
        added = ""
        if "priority" in self._flags.enabled:
            added += f',"priority":{-priority}'
        if tenant:
            added += f',"cache_salt":"{self._salt(tenant)}"'
        whole = body.rstrip()
        is_object = whole.startswith(b"{") and whole.endswith(b"}") and whole[1:-1].strip()
        return whole[:-1] + added.encode() + b"}" if added and is_object else body

    def _salt(self, tenant: str) -> str:
        """Only this process knows the secret, so nobody can name another tenant's salt in a body that is too
        large to be looked at. A process that starts anew finds nothing cached."""
        return hashlib.blake2b(tenant.encode(), key=self._secret, digest_size=16).hexdigest()

    def _loading(self) -> Probe:
        now = self._clock()
        if self._loading_since_s is None:
            self._loading_since_s = now
        waited_s = now - self._loading_since_s
        is_late = waited_s > LOADING_LIMIT_S
        reason = f"vLLM has not opened its port within {LOADING_LIMIT_S:.0f} s" if is_late else ""
        return Probe(not is_late, reason, EngineState(phase=Phase.LOADING))

    def _check(self, wanted: HotSettings) -> None:
        """Raises FlagsRefusedError for what differs from the start arguments."""
        started = set(self._flags.enabled)
        for flag in wanted.flags:
            if flag.enabled != (flag.name in started):
                to_be, is_now = ("on", "without") if flag.enabled else ("off", "with")
                raise FlagsRefusedError(
                    f"flags.{flag.name}: vLLM was started {is_now} it and cannot switch it {to_be} while it "
                    f"runs; it runs with {', '.join(sorted(started)) or 'none'}"
                )

    async def _max_model_len(self) -> int:
        status, body = await self._get("/v1/models", engines.PROBE_TIMEOUT_S)
        try:
            return int(json.loads(body)["data"][0]["max_model_len"]) if status == 200 else 0
        except (ValueError, KeyError, IndexError, TypeError):
            return 0  # behind an API key, or of a version that does not say

    async def _get(self, path: str, timeout_s: float) -> tuple[int, bytes]:
        return await asking.ask(self._session, "GET", self._api_url.with_path(path), timeout_s)
