"""Notices a watch that has silently stopped: compares a list with the store now and then.

A stalled watch looks like peace. Every ten minutes each kind is listed (metadata only, from any API server's
cache) and the store must have caught up with that list a minute later: it must know what the list names, at
least in that version, and nothing that had gone by then. If not, liveness fails and the process starts anew.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from firsttoken_api import names
from firsttoken_operator import client, kinds
from firsttoken_operator.store import Store

log = logging.getLogger(__name__)

EVERY_S = 600.0
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Difference:
    """What the store did not know when it was listed."""

    behind: dict[str, int]
    """Listed version by uid."""
    ghosts: dict[str, str]
    """Version in the store by uid of what the list no longer has."""


def compare(listed: dict[str, str], known: dict[str, str]) -> Difference:
    """Both: resourceVersion by uid."""
    return Difference(
        behind={uid: int(v) for uid, v in listed.items() if int(known.get(uid, "-1")) < int(v)},
        ghosts={uid: version for uid, version in known.items() if uid not in listed},
    )


def is_settled(difference: Difference, known: dict[str, str], deleted: Callable[[str], bool]) -> bool:
    """Whether the store has caught up since. `deleted`: the watch told that this uid is gone."""
    caught_up = all(
        deleted(uid) or int(known.get(uid, "-1")) >= version for uid, version in difference.behind.items()
    )
    return caught_up and all(known.get(uid) != version for uid, version in difference.ghosts.items())


class Freshness:
    """Runs the comparison; `problem` is empty while all is well."""

    def __init__(
        self,
        api: client.Client,
        store: Store,
        namespaces: tuple[str, ...],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.problem = ""
        self._api = api
        self._store = store
        self._namespaces: tuple[str | None, ...] = namespaces or (None,)
        self._clock = clock
        self._equal_at = clock()

    def staleness_s(self) -> float:
        """Seconds since the store was last known to equal a list."""
        return self._clock() - self._equal_at

    async def run(self) -> None:
        """Compare every ten minutes until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S * (0.9 + 0.2 * random.random()))
            try:
                await self.check()
            except client.ApiError as error:
                log.warning("comparing watches with lists: %s", error)

    async def check(self, patience_s: float = PATIENCE_S) -> None:
        """One comparison of every kind. ApiError when a list fails."""
        begin = self._clock()
        suspects: list[tuple[kinds.Kind, str | None, Difference]] = []
        for namespace in self._namespaces:
            for kind in (kinds.INFERENCE_SERVICE, *kinds.CHILDREN):
                # Before the list: what is made while it is taken must not look like a ghost.
                known = self._store.versions(kind, namespace)
                difference = compare(await self._listed(kind, namespace), known)
                if difference.behind or difference.ghosts:
                    suspects.append((kind, namespace, difference))
        if suspects:
            await asyncio.sleep(patience_s)
        for kind, namespace, difference in suspects:
            known = self._store.versions(kind, namespace)
            if not is_settled(difference, known, self._store.was_deleted):
                self.problem = f"the watch of {kind.plural} is stale"
                log.error("%s: %s", self.problem, difference)
                return
        self._equal_at = begin
        self.problem = ""

    async def _listed(self, kind: kinds.Kind, namespace: str | None) -> dict[str, str]:
        selector = None if kind is kinds.INFERENCE_SERVICE else f"{names.LABEL_MANAGED}=true"
        items = await self._api.list(kind, namespace, label_selector=selector, metadata_only=True)
        return {item["metadata"]["uid"]: item["metadata"]["resourceVersion"] for item in items}
