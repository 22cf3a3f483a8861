"""Who asks: the caller behind the API key of a request, from a mounted file that may change at any time.

A file that does not parse keeps the last good one in force, and `error` says which entry is wrong. As long as
there was no good one nobody is let in: a service that asks for keys does not want everybody instead. Of keys
only hashes are kept, each request is compared with all of them in constant time, and neither a key nor the
value of a header ever reaches a log line or a message.
"""

import asyncio
import hmac
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from firsttoken_api import errors, names
from firsttoken_api.state import KeyUse, SidecarState
from firsttoken_sidecar import keys, limits, logs, metrics, mounts
from firsttoken_sidecar.caller import ANONYMOUS as ANONYMOUS
from firsttoken_sidecar.caller import Caller as Caller

INTERVAL_S = 0.5
_HEADER = "authorization"
_SCHEME = "bearer"

logger = logging.getLogger(__name__)


class Auth:
    """The keys in force. Without a folder everybody may ask."""

    def __init__(self, folder: Path | None, clock: Callable[[], float], counts: metrics.Counts) -> None:
        self._file = mounts.MountedFile(folder, names.KEYS_FILE) if folder is not None else None
        self._callers: tuple[tuple[bytes, Caller], ...] | None = None
        self._counts = counts
        self._clock = clock
        self._limited = logs.Limited(logger, clock)
        self._limits = limits.Limits()
        self.error = ""
        """Why the newest file is not in force; empty when it is, or where none is asked for."""
        self.reload()

    @property
    def is_on(self) -> bool:
        """Whether keys are asked for."""
        return self._file is not None

    def why_not_ready(self) -> str:
        """Empty as long as somebody can be let in."""
        if self._file is None or self._callers is not None:
            return ""
        return f"no API keys: {self.error}"

    def identify(self, headers: Mapping[str, str]) -> Caller:
        """The caller of a request with these headers (a multidict).

        Raises errors.UnauthorizedError for a key that is missing or wrong, errors.KeysUnavailableError while
        there are none to compare with.
        """
        if self._file is None:
            return ANONYMOUS
        if self._callers is None:
            self._counts.refusals[metrics.RefusalReason.KEYS_UNAVAILABLE] += 1
            raise errors.KeysUnavailableError("The API keys of this service cannot be read; try again later.")
        presented = [value for name, value in headers.items() if name.lower() == _HEADER]
        found = self._known(presented[0]) if len(presented) == 1 else None
        if found is None:
            self._counts.refusals[metrics.RefusalReason.UNAUTHORIZED] += 1
            self._limited.warning("request refused: " + ("wrong API key" if presented else "no API key"))
            raise errors.UnauthorizedError(
                "The API key is wrong or was revoked."
                if presented
                else "An API key is needed: send it as `Authorization: Bearer KEY`."
            )
        return found

    def take(self, caller: Caller, tokens: int) -> limits.Charge:
        """Counts a request against the caller's limits; `settle` the charge when it has ended.

        For requests that came from clients: one that a peer sent on was counted there. Raises
        errors.RateLimitedError.
        """
        try:
            return self._limits.take(caller, tokens, self._clock())
        except errors.RateLimitedError:
            self._counts.refusals[metrics.RefusalReason.RATE_LIMITED] += 1
            self._limited.warning("request refused: over the limit of its API key", key=caller.name)
            raise

    def uses(self) -> dict[str, KeyUse]:
        """What was taken here of keys that have a limit, for /state."""
        return self._limits.uses()

    def heard(self, peer: str, state: SidecarState) -> None:
        """A peer says how it is: what was taken there of a key's limit counts here too."""
        if self.is_on:
            self._limits.taken_elsewhere(peer, state.key_uses, self._clock())

    def reload(self) -> None:
        """Reads the file if it is another one than at the last look."""
        if self._file is None or not self._file.changed():
            return
        try:
            content = self._file.read()
            if content is None:
                raise keys.BadKeysError(f"there is no {names.KEYS_FILE}")
            entries = keys.parse(content)
        except (keys.BadKeysError, OSError) as error:
            self.error = str(error)
            self._counts.keys_errors += 1
            logger.warning("API keys kept out", extra=logs.fields(error=self.error))
            return
        self._callers = tuple((entry.sha256, _caller(entry)) for entry in entries)
        self._limits.follow((caller for _, caller in self._callers), self._clock())
        self.error = ""
        self._counts.keys_loaded += 1
        logger.info("API keys read", extra=logs.fields(keys=len(entries)))

    async def run(self) -> None:
        """Follows the file until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            self.reload()

    def _known(self, authorization: str) -> Caller | None:
        scheme, _, key = authorization.partition(" ")
        key = key.strip()
        if scheme.lower() != _SCHEME or not 0 < len(key) <= keys.LONGEST_KEY:
            return None
        digest = keys.hashed(key)
        found = None
        assert self._callers is not None
        for accepted, caller in self._callers:
            if hmac.compare_digest(accepted, digest):
                found = caller
        return found


def _caller(entry: keys.Entry) -> Caller:
    return Caller(
        name=entry.name,
        tenant=entry.tenant,
        max_class=entry.max_class,
        weight=entry.weight,
        requests_per_minute=entry.requests_per_minute,
        tokens_per_minute=entry.tokens_per_minute,
    )
