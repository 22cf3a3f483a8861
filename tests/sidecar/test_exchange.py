"""What ends with an exchange, and what its ticket is told."""

import pytest

from firsttoken_sidecar import answers, exchange, stages
from sidecar import scripted


async def test_the_head_and_the_bytes_are_those_of_the_answer() -> None:
    response = scripted.Response(b"one ", b"two", b"", status=201, headers={"X-From": "there"})
    under_way = exchange.Exchange(response.upstream(), None)
    assert (under_way.status, under_way.reason) == (201, "Scripted")
    assert under_way.headers["X-From"] == "there"
    assert [await under_way.read() for _ in range(4)] == [b"one ", b"two", b"", b""]


async def test_what_was_waited_for_before_is_read_first() -> None:
    upstream = scripted.Response(b"one ", b"two", b"").upstream()
    await upstream.wait_for_first()
    under_way = exchange.Exchange(upstream, None)
    assert [await under_way.read() for _ in range(3)] == [b"one ", b"two", b""]


async def test_a_complete_answer_leaves_its_connection_and_how_long_it_was() -> None:
    response, ticket = scripted.Response(b"all of it", b""), scripted.Ticket()
    under_way = exchange.Exchange(response.upstream(), ticket)
    while await under_way.read():
        pass
    under_way.ended(stages.Stamps(completion_tokens=7))
    under_way.close()
    assert response.ending == "released"
    assert ticket.closings == [7]


async def test_an_answer_whose_client_left_is_given_up_and_has_no_length() -> None:
    """What was computed of it says nothing about how long answers get."""
    response, ticket = scripted.Response(b"some"), scripted.Ticket()
    under_way = exchange.Exchange(response.upstream(), ticket)
    assert await under_way.read() == b"some"
    under_way.close()
    assert response.ending == "closed"
    assert ticket.closings == [None]


async def test_an_answer_that_broke_off_ends_its_connection_and_its_ticket() -> None:
    response, ticket = scripted.Response(b"some", ConnectionResetError()), scripted.Ticket()
    under_way = exchange.Exchange(response.upstream(), ticket)
    await under_way.read()
    with pytest.raises(answers.BrokenOffError):
        await under_way.read()
    under_way.close()
    assert response.ending == "closed"
    assert ticket.closings == [None]


async def test_an_engine_that_says_nothing_of_its_answer_leaves_its_length_unknown() -> None:
    ticket = scripted.Ticket()
    under_way = exchange.Exchange(scripted.Response(b"").upstream(), ticket)
    assert await under_way.read() == b""
    under_way.ended(None)
    under_way.close()
    assert ticket.closings == [None]


async def test_the_ticket_is_told_of_the_first_content() -> None:
    ticket, stamps = scripted.Ticket(), stages.Stamps(prompt_tokens=12)
    exchange.Exchange(scripted.Response().upstream(), ticket).first_content(0.25, stamps)
    assert ticket.firsts == [(0.25, stamps)]


async def test_who_was_let_in_elsewhere_has_no_estimate_and_nobody_to_tell() -> None:
    response = scripted.Response(b"some", b"")
    under_way = exchange.Exchange(response.upstream(), None)
    assert under_way.estimate is None
    under_way.first_content(0.25, None)
    while await under_way.read():
        pass
    under_way.ended(stages.Stamps(completion_tokens=3))
    under_way.close()
    assert under_way.completion_tokens == 3
    assert response.ending == "released"
