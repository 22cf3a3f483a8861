import pytest
from multidict import CIMultiDict

from firsttoken_api import names
from firsttoken_sidecar import headers


def test_end_to_end_headers_pass_unchanged_and_repeated() -> None:
    client = CIMultiDict(
        [
            ("Host", "chat"),
            ("Authorization", "Bearer k"),
            ("X-A", "1"),
            ("x-a", "2"),
            ("Accept-Encoding", "br"),
        ]
    )
    passed = headers.of_request(client, "id-1")
    assert list(passed.items()) == [*client.items(), ("X-Request-Id", "id-1")]


def test_hop_by_hop_headers_and_those_that_connection_names_end_here() -> None:
    client = CIMultiDict(
        [
            ("Connection", "keep-alive, X-Mine"),
            ("connection", "Upgrade"),
            ("Keep-Alive", "timeout=5"),
            ("X-Mine", "1"),
            ("TE", "trailers"),
            ("Trailer", "X"),
            ("Transfer-Encoding", "chunked"),
            ("Upgrade", "h2c"),
            ("Proxy-Authorization", "x"),
            ("Proxy-Connection", "x"),
            ("Expect", "100-continue"),
            ("Content-Length", "3"),
        ]
    )
    assert list(headers.of_request(client, "i")) == ["Content-Length", "X-Request-Id"]
    assert list(headers.of_answer(client, "i")) == ["Expect", "Content-Length", "X-Request-Id"]


def test_clients_cannot_set_what_sidecars_set() -> None:
    client = CIMultiDict(
        [("x-firsttoken-tenant", "root"), ("X-FIRSTTOKEN-HOP", "1"), (names.HEADER_CLASS, "b")]
    )
    assert list(headers.of_request(client, "i")) == [names.HEADER_CLASS, "X-Request-Id"]


def test_what_kind_of_request_it_is_passes_whatever_is_asked_for() -> None:
    """The engine knows the classes and routes in force and refuses others; here nothing is guessed."""
    client = CIMultiDict(
        [(names.HEADER_CLASS, "batch"), (names.HEADER_ROUTE, "intent"), ("x-firsttoken-class", "none such")]
    )
    passed = headers.of_request(client, "i")
    assert passed.getall(names.HEADER_CLASS) == ["batch", "none such"]
    assert passed.getall(names.HEADER_ROUTE) == ["intent"]


def test_the_request_id_replaces_the_engines() -> None:
    engine = CIMultiDict([("x-request-id", "engine's"), ("X-Request-Id", "again")])
    assert headers.of_answer(engine, "mine").getall("X-Request-Id") == ["mine"]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (None, "stamps"),
        ("false", "stamps"),
        ("true", "true,stamps"),
        ("stamps", "stamps"),
        ("true,stamps", "true,stamps"),
        ("maybe", "maybe"),
    ],
)
def test_stamps_are_asked_for_beside_what_the_client_asks(asked: str | None, expected: str) -> None:
    """What is not valid stays as it is: the engine refuses it."""
    passed = CIMultiDict({} if asked is None else {names.HEADER_TIMING.lower(): asked})
    headers.ask_for_stamps(passed)
    assert passed.getall(names.HEADER_TIMING) == [expected]
    assert headers.wants_timing(passed) == ("true" in expected)


@pytest.mark.parametrize("hides_key", [True, False])
def test_the_engine_knows_tenants_and_a_key_only_if_it_checks_it_itself(hides_key: bool) -> None:
    passed = CIMultiDict([("Authorization", "Bearer k"), ("X-A", "1")])
    known = headers.for_engine(passed, "acme", hides_key=hides_key)
    assert ("Authorization" in known) is not hides_key
    assert known[names.HEADER_TENANT] == "acme"
    assert names.HEADER_TENANT not in headers.for_engine(passed, "", hides_key=hides_key)
    assert list(passed) == ["Authorization", "X-A"], "a peer gets it as it was"


@pytest.mark.parametrize("is_forwarded", [True, False])
def test_stamps_in_a_header_go_to_peers_only(is_forwarded: bool) -> None:
    engine = CIMultiDict([("x-firsttoken-stamps", "{}"), ("X-B", "2")])
    passed = headers.of_answer(engine, "i", is_forwarded=is_forwarded)
    assert (names.HEADER_STAMPS in passed) is is_forwarded
