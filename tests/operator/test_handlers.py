"""The kopf shell: selectors go to the server, and nothing in it would make kopf write."""

import inspect

import kopf
from kopf._cogs.structs import references

from firsttoken_api import names
from firsttoken_operator import handlers, kinds, queue
from firsttoken_operator.store import Store


def resource(kind: kinds.Kind) -> references.Resource:
    return references.Resource(kind.group, kind.version, kind.plural, kind=kind.name, namespaced=True)


def test_children_are_selected_by_the_server_and_services_are_not() -> None:
    chosen = handlers.configuration(is_clusterwide=True)
    for kind in kinds.CHILDREN:
        selectors = list(chosen.watching.label_selectors.collect(resource(kind)))
        assert selectors == [f"{names.LABEL_MANAGED}=true"]
    assert list(chosen.watching.label_selectors.collect(resource(kinds.INFERENCE_SERVICE))) == []


def test_quiet_and_with_timeouts() -> None:
    chosen = handlers.configuration(is_clusterwide=False)
    assert chosen.posting.enabled is False
    assert chosen.scanning.disabled is True
    assert (chosen.watching.server_timeout, chosen.watching.client_timeout) == (600, 660)
    assert chosen.watching.chunk_size == 500
    assert chosen.networking.request_timeout == 30


async def test_only_events_and_indices() -> None:
    """Anything else would add finalizers or annotations to objects."""
    made = handlers.registry(Store(), queue.Queue())
    for kind in (kinds.INFERENCE_SERVICE, *kinds.CHILDREN):
        assert made._watching.has_handlers(resource(kind))
        assert made._indexing.has_handlers(resource(kind))
        assert not made._changing.has_handlers(resource(kind))
        assert not made._spawning.has_handlers(resource(kind))
    assert isinstance(made, kopf.OperatorRegistry)


async def test_no_handler_runs_in_a_thread() -> None:
    """kopf runs plain functions in threads; store and queue belong to the event loop."""
    made = handlers.registry(Store(), queue.Queue())
    found = [*made._watching.get_all_handlers(), *made._indexing.get_all_handlers()]
    assert len(found) == 2 * (1 + len(kinds.CHILDREN))
    assert all(inspect.iscoroutinefunction(each.fn) for each in found)
