"""Warning events of what has been pending for a while, read on demand.

A missing Secret or a refused volume shows only as an event. Watching all events of a cluster for that would
cost more than everything else together, so they are listed by the object they are about, and only while a
pod, or the making of a pod, hangs.
"""

import logging
from typing import Any

from firsttoken_operator import client, kinds

Object = dict[str, Any]
log = logging.getLogger(__name__)

AGAIN_AFTER_S = 10.0
_LARGEST_CACHE = 5_000


class Events:
    """The last read events by the uid of what they are about."""

    def __init__(self, api: client.Client) -> None:
        self._api = api
        self._known: dict[str, tuple[float, tuple[Object, ...]]] = {}

    def of(self, uid: str) -> tuple[Object, ...]:
        return self._known[uid][1] if uid in self._known else ()

    def is_due(self, uid: str, now: float) -> bool:
        return uid not in self._known or now - self._known[uid][0] >= AGAIN_AFTER_S

    async def read(self, namespace: str, uid: str, now: float) -> None:
        """Warnings about one object. An error leaves what was known: events explain, they do not decide."""
        selector = f"type=Warning,involvedObject.uid={uid}"
        try:
            found = tuple(await self._api.list(kinds.EVENT, namespace, field_selector=selector))
        except client.ApiError as error:
            log.warning("events about %s: %s", uid, error)
            found = self.of(uid)
        self._known.pop(uid, None)
        self._known[uid] = (now, found)
        while len(self._known) > _LARGEST_CACHE:
            del self._known[next(iter(self._known))]
