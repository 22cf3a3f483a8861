"""The kopf shell: its watches fill the store and name keys to the queue. Nothing else happens here.

Only indices and event handlers: no timers, daemons, finalizers or annotations, and nothing is posted, so kopf
itself never writes. An index function runs before any event handler of any kind, and event handlers wait
until every kind was listed once: the first reconcile sees the whole picture. kopf passes our label selectors
to the API server (`settings.watching.label_selectors`), so that only our own pods travel.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import kopf

from firsttoken_api import names
from firsttoken_operator import kinds, queue, settings
from firsttoken_operator.store import Store, owner

log = logging.getLogger(__name__)

SERVER_TIMEOUT_S = 600
CLIENT_TIMEOUT_S = 660
REQUEST_TIMEOUT_S = 30
CHUNK = 500
EXIT_TIMEOUT_S = 0.2


def registry(store: Store, work: queue.Queue) -> kopf.OperatorRegistry:
    """Handlers of every watched kind."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.login(registry=handlers)
    async def login(**arguments: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**arguments) or kopf.login_with_kubeconfig(**arguments)

    # Coroutines, or kopf would run them in threads beside the loop that reads the store.
    async def indexed(body: kopf.Body, **_: Any) -> None:
        store.put(dict(body))

    async def seen(event: Any, **_: Any) -> None:
        body = event["object"]
        if event["type"] == "DELETED":
            store.remove(body)
        else:
            store.put(body)
        key = owner(body)
        if key is not None:
            work.add(key)

    for kind in (kinds.INFERENCE_SERVICE, *kinds.CHILDREN):
        where = (kind.group, kind.version, kind.plural)
        kopf.index(*where, id=f"known-{kind.plural}", registry=handlers)(indexed)
        kopf.on.event(*where, id=f"seen-{kind.plural}", registry=handlers)(seen)
    return handlers


def configuration(is_clusterwide: bool) -> kopf.OperatorSettings:
    """kopf's settings: quiet, chunked, with timeouts, and with selectors for what is not a service."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.peering.standalone = True
    chosen.scanning.disabled = not is_clusterwide
    chosen.watching.server_timeout = SERVER_TIMEOUT_S
    chosen.watching.client_timeout = CLIENT_TIMEOUT_S
    chosen.watching.chunk_size = CHUNK
    chosen.networking.request_timeout = REQUEST_TIMEOUT_S
    # Handlers only name keys: there is nothing to wait for when leading ends, and a standby is waiting.
    chosen.queueing.exit_timeout = EXIT_TIMEOUT_S
    for kind in kinds.CHILDREN:
        chosen.watching.label_selectors[kind.group, kind.version, kind.plural] = f"{names.LABEL_MANAGED}=true"
    return chosen


async def watch(
    store: Store, work: queue.Queue, chosen: settings.Settings, started: Callable[[], None]
) -> None:
    """Watch until cancelled. `started` is called once kopf has set its tasks (and its signal handlers) up."""
    ready = asyncio.Event()
    is_clusterwide = chosen.watch_scope == "cluster"
    running = asyncio.create_task(
        kopf.operator(
            registry=registry(store, work),
            settings=configuration(is_clusterwide),
            clusterwide=is_clusterwide,
            namespaces=chosen.watch_namespaces,
            standalone=True,
            ready_flag=ready,
        ),
        name="kopf",
    )
    try:
        waiting = asyncio.create_task(ready.wait(), name="kopf ready")
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if ready.is_set():
            started()
        await running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
