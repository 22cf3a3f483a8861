"""Names to addresses, whatever the resolver does."""

import asyncio
import socket
from collections.abc import Callable

import pytest

from firsttoken_sidecar import addresses


async def test_an_address_resolves_to_itself() -> None:
    assert await addresses.Lookup("127.0.0.7").again() == {"127.0.0.7"}
    assert await addresses.Lookup("::1").again() == {"::1"}


def failing(code: int) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise socket.gaierror(code, "that is how it is")

    return fail


async def test_a_name_without_an_address_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", failing(socket.EAI_NONAME))
    assert await addresses.Lookup("chat-peers").again() == set()


async def test_a_resolver_that_does_not_say_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", failing(socket.EAI_AGAIN))
    with pytest.raises(addresses.LookupFailedError, match=r"chat-peers: .*that is how it is"):
        await addresses.Lookup("chat-peers").again()


async def test_a_resolver_that_hangs_is_asked_once_and_its_late_answer_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(addresses, "LOOKUP_LIMIT_S", 0.02)
    asked = 0
    answer = asyncio.Event()

    async def hanging(name: str) -> frozenset[str]:
        nonlocal asked
        asked += 1
        await answer.wait()
        return frozenset({"10.0.0.1"})

    lookup = addresses.Lookup("peers", hanging)
    for _ in range(3):
        with pytest.raises(addresses.LookupFailedError, match="no answer"):
            await lookup.again()
    answer.set()
    monkeypatch.setattr(addresses, "LOOKUP_LIMIT_S", 5.0)
    assert await lookup.again() == {"10.0.0.1"}
    assert asked == 1


async def test_closing_ends_a_resolver_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "LOOKUP_LIMIT_S", 0.01)
    ended = asyncio.Event()

    async def hanging(name: str) -> frozenset[str]:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return frozenset()

    lookup = addresses.Lookup("peers", hanging)
    with pytest.raises(addresses.LookupFailedError):
        await lookup.again()
    await lookup.close()
    assert ended.is_set()


@pytest.mark.parametrize(
    ("address", "normal"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("FE80::1%eth0", "fe80::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("no address", "no address"),
    ],
)
def test_one_spelling_for_each_address(address: str, normal: str) -> None:
    assert addresses.normalized(address) == normal


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (None, None),
        ("", None),
        ("0.0.0.0", None),
        ("::", None),
        ("localhost", None),
        ("127.0.0.2", "127.0.0.2"),
    ],
)
def test_only_one_place_is_specific(host: str | None, expected: str | None) -> None:
    assert addresses.specific(host) == expected


def test_the_own_address_is_found_and_no_other() -> None:
    assert addresses.is_own("127.0.0.1")
    assert not addresses.is_own("127.0.0.2")
