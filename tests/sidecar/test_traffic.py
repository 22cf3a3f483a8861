import pytest

from firsttoken_api import errors
from firsttoken_sidecar import traffic
from sidecar import fakes


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/chat/completions", True),
        ("/v1/models", True),
        ("/v1/", True),
        ("/health", True),
        ("/tokenize", True),
        ("/detokenize", True),
        ("/v1", False),
        ("/", False),
        ("", False),
        ("/health/x", False),
        ("/metrics", False),
        ("/state", False),
        ("/flags", False),
        ("/v1/../flags", False),
        ("/v1/..", False),
        ("/v1/./x", False),
        ("/v1/..x", True),
    ],
)
def test_what_passes(path: str, expected: bool) -> None:
    assert traffic.is_passed(path) is expected


@pytest.mark.parametrize(
    "path", ["/metrics", "/v1/%2e%2e/state", "/v1/../state", "/V1/models", "//v1/models"]
)
async def test_other_paths_are_unknown_in_openais_form(path: str) -> None:
    async with fakes.engine() as engine, fakes.beside(engine) as sidecar, sidecar.raw() as (reader, writer):
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 404 ")
        assert b'"code": "unknown_url"' in answer
        assert engine.seen == []


async def test_an_absolute_target_is_this_server() -> None:
    async with fakes.engine() as engine, fakes.beside(engine) as sidecar, sidecar.raw() as (reader, writer):
        writer.write(b"GET http://elsewhere:9/v1/models?a=b HTTP/1.1\r\nHost: elsewhere:9\r\n\r\n")
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        assert engine.seen[-1].path == "/v1/models?a=b"


async def test_the_request_id_is_kept_or_made_and_echoed() -> None:
    async with fakes.engine() as engine, fakes.beside(engine) as sidecar:
        async with await sidecar.chat(headers={"X-Request-Id": "mine"}) as response:
            assert response.headers.getall("X-Request-Id") == ["mine"]
        made = set()
        for path in ("/v1/models", "/v1/models", "/nowhere"):
            async with sidecar.client.get(sidecar.url(path)) as response:
                made.add(response.headers["X-Request-Id"])
        assert len(made) == 3
        ids = [dict(seen.headers)["X-Request-ID"] for seen in engine.seen]
        assert ids[0] == "mine"
        assert set(ids[1:]) < made


async def test_only_requests_for_tokens_are_arrivals() -> None:
    async with fakes.engine() as engine, fakes.beside(engine) as sidecar:
        for method, path in [("GET", "/v1/chat/completions"), ("POST", "/tokenize"), ("GET", "/health")]:
            async with sidecar.client.request(method, sidecar.url(path)) as response:
                assert response.status == 200
        assert (await sidecar.state()).arrivals_total == 0
        async with sidecar.client.post(sidecar.url("/v1/completions"), json={}) as response:
            await response.read()
        state = await sidecar.state()
        assert state.arrivals_total == 1
        assert state.ttft is not None
        assert sum(state.ttft.counts) == 1


async def test_malformed_http_is_a_bad_request_and_nothing_of_it_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with fakes.engine() as engine, fakes.beside(engine) as sidecar:
        for _ in range(5):
            async with sidecar.raw() as (reader, writer):
                writer.write(
                    b"POST /v1/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer s3cret\r\nbad header\r\n\r\n"
                )
                assert b" 400 " in await reader.readline()
        async with sidecar.client.get(sidecar.url("/health")) as response:
            assert response.status == 200
        assert len(engine.seen) == 1
        async with sidecar.client.get(sidecar.ops("/metrics")) as response:
            assert 'firsttoken_refusals_total{reason="malformed"} 5.0' in await response.text()
    assert caplog.text.count("malformed request refused") == 1
    assert "s3cret" not in caplog.text
    assert "bad header" not in caplog.text


@pytest.mark.parametrize("head", [b"x" * 9000, b"GET /v1/models HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n"])
async def test_header_bombs_are_refused(head: bytes) -> None:
    async with fakes.engine() as engine, fakes.beside(engine) as sidecar, sidecar.raw() as (reader, writer):
        writer.write(head + b"\r\n\r\n")
        assert b" 400 " in await reader.readline()
        assert engine.seen == []


async def test_answers_are_counted_by_status() -> None:
    async with fakes.engine() as engine, fakes.beside(engine) as sidecar:
        for path in ("/v1/models", "/nowhere", "/health"):
            async with sidecar.client.get(sidecar.url(path)) as response:
                await response.read()
        async with sidecar.client.get(sidecar.ops("/metrics")) as response:
            text = await response.text()
    assert 'firsttoken_answers_total{status="2xx"} 2.0' in text
    assert 'firsttoken_answers_total{status="4xx"} 1.0' in text
    assert 'firsttoken_refusals_total{reason="unknown_path"} 1.0' in text


def test_refusals_have_the_status_clients_expect() -> None:
    assert errors.DrainingError.status == 503
    assert errors.UnknownRouteError.status == 404
