"""A request holds the memory of its body until nobody will send it again, and no longer."""

from unittest import mock

import pytest

from firsttoken_api import errors
from firsttoken_sidecar import arrivals, body_memory, dispatch, exchange, inspection, stages, work
from firsttoken_sidecar.caller import ANONYMOUS

BODY = b"x" * 100


class Held:
    """Work whose body is in memory, and what sends it."""

    def __init__(self) -> None:
        self.memory = body_memory.BodyMemory(1000)
        self.lease = self.memory.lease()
        self.dispatch = mock.Mock(spec=dispatch.Dispatch)
        inspected = inspection.Inspected(body=BODY, estimated_prompt_tokens=25)
        self.arrival = arrivals.Arrival("request-1", 0.0, ANONYMOUS, inspected, "client")
        self.request = mock.Mock(spec=dispatch.Request)
        self.work = work.Work(self.dispatch, self.arrival, self.request, self.lease)

    async def take(self) -> "Held":
        await self.lease.take(len(BODY))
        return self

    @property
    def is_given_up(self) -> bool:
        return self.memory.left_bytes == 1000 and self.arrival.inspected.body is None


async def test_it_is_sent_with_its_body_which_is_then_given_up() -> None:
    held = await Held().take()
    answer = mock.Mock(spec=exchange.Exchange)

    async def send(arrival: arrivals.Arrival, *rest: object) -> exchange.Exchange:
        assert arrival.inspected.body == BODY
        assert held.memory.left_bytes == 900
        assert rest == (held.request, on_sent)
        taken: exchange.Exchange = answer
        return taken

    on_sent = mock.Mock()
    held.dispatch.open.side_effect = send
    assert await held.work.open(on_sent) is answer
    assert held.is_given_up


async def test_what_cannot_be_sent_is_given_up_too() -> None:
    held = await Held().take()
    held.dispatch.open.side_effect = errors.OverloadedError("later")
    with pytest.raises(errors.OverloadedError):
        await held.work.open(lambda: None)
    assert held.is_given_up
    held.work.give_up_body()
    assert held.memory.left_bytes == 1000, "it is given back once"


def test_what_it_used_is_known_with_all_of_its_answer() -> None:
    held = Held()
    assert held.work.used_tokens is None
    held.work.stamps = stages.Stamps(prompt_tokens=30)
    assert held.work.used_tokens is None
    held.work.stamps = stages.Stamps(prompt_tokens=30, completion_tokens=12)
    assert held.work.used_tokens == 42
