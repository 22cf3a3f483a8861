"""The door to the API server, against a server on loopback: paths, bodies, chunks, errors, timeouts."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio import client as official

from firsttoken_operator import client, kinds
from firsttoken_operator.client import Client

Object = dict[str, Any]
Answer = Callable[[web.Request], Awaitable[web.Response]]


class Server:
    """Answers every request with `answer`, and keeps what was asked."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, Object, str, str]] = []
        self.answer: Answer = self.object

    async def object(self, request: web.Request) -> web.Response:
        return web.json_response({"kind": "Thing", "metadata": {"name": "x"}})

    async def handle(self, request: web.Request) -> web.Response:
        self.requests.append(
            (
                request.method,
                request.path,
                dict(request.query),
                request.headers.get("Content-Type", ""),
                await request.text(),
            )
        )
        return await self.answer(request)


@pytest.fixture
async def server() -> AsyncIterator[tuple[Server, Client]]:
    known = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", known.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    configuration = official.Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}")
    async with official.ApiClient(configuration) as api:
        yield known, Client(api)
    await runner.cleanup()


def status(code: int, message: str, **headers: str) -> Answer:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"kind": "Status", "message": message}, status=code, headers=headers)

    return answer


BODY = {"kind": "Service", "metadata": {"name": "chat", "namespace": "team", "uid": "u"}, "spec": {}}


async def test_a_server_side_apply_forces_our_fields(server: tuple[Server, Client]) -> None:
    known, api = server
    await api.apply(kinds.SERVICE, BODY, field_manager="me")
    ((method, path, query, content_type, body),) = known.requests
    assert (method, path) == ("PATCH", "/api/v1/namespaces/team/services/chat")
    assert query == {"fieldManager": "me", "force": "True"} or query == {
        "fieldManager": "me",
        "force": "true",
    }
    assert content_type == "application/apply-patch+yaml"
    assert json.loads(body) == BODY


async def test_the_status_has_its_own_path(server: tuple[Server, Client]) -> None:
    known, api = server
    await api.apply(kinds.INFERENCE_SERVICE, BODY, field_manager="me", subresource="status")
    path = known.requests[0][1]
    assert path == "/apis/firsttoken.dev/v1alpha1/namespaces/team/inferenceservices/chat/status"


async def test_create_replace_merge_and_edit(server: tuple[Server, Client]) -> None:
    known, api = server
    await api.create(kinds.DEPLOYMENT, BODY, field_manager="me")
    await api.replace(kinds.LEASE, BODY)
    await api.merge(kinds.POD, "team", "p", {"metadata": {}})
    await api.edit(kinds.POD, "team", "p", [{"op": "test", "path": "/a", "value": 1}])
    assert [(request[0], request[1], request[3]) for request in known.requests] == [
        ("POST", "/apis/apps/v1/namespaces/team/deployments", "application/json"),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/team/leases/chat", "application/json"),
        ("PATCH", "/api/v1/namespaces/team/pods/p", "application/merge-patch+json"),
        ("PATCH", "/api/v1/namespaces/team/pods/p", "application/json-patch+json"),
    ]
    assert json.loads(known.requests[3][4]) == [{"op": "test", "path": "/a", "value": 1}]


async def test_a_deletion_names_the_uid_and_a_missing_object_is_fine(server: tuple[Server, Client]) -> None:
    known, api = server
    known.answer = status(404, "gone")
    await api.delete(kinds.POD, "team", "p", "uid-1")
    body = json.loads(known.requests[0][4])
    assert body == {"preconditions": {"uid": "uid-1"}, "propagationPolicy": "Background"}


async def test_lists_come_in_chunks_and_may_be_null(server: tuple[Server, Client]) -> None:
    known, api = server

    async def page(request: web.Request) -> web.Response:
        if request.query.get("continue") == "more":
            return web.json_response({"metadata": {}, "items": [{"n": 2}]})
        return web.json_response({"metadata": {"continue": "more"}, "items": [{"n": 1}]})

    known.answer = page
    assert await api.list(kinds.POD, None, label_selector="a=b") == [{"n": 1}, {"n": 2}]
    first, second = (request[2] for request in known.requests)
    assert first == {"limit": "500", "labelSelector": "a=b"}
    assert second == {"limit": "500", "labelSelector": "a=b", "continue": "more"}
    assert known.requests[0][1] == "/api/v1/pods"

    async def nothing(_: web.Request) -> web.Response:
        return web.json_response({"metadata": {}, "items": None})

    known.answer = nothing
    assert await api.list(kinds.POD, "team", metadata_only=True) == []


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (400, client.RefusedError),
        (403, client.RefusedError),
        (404, client.NotFoundError),
        (409, client.ConflictError),
        (422, client.RefusedError),
        (500, client.ApiError),
    ],
)
async def test_errors_have_one_tree_and_the_server_s_words(
    server: tuple[Server, Client], code: int, error: type[client.ApiError]
) -> None:
    known, api = server
    known.answer = status(code, "what the server says")
    with pytest.raises(error) as raised:
        await api.get(kinds.POD, "team", "p")
    assert raised.value.status == code
    assert raised.value.detail == "what the server says"
    assert "/api/v1/namespaces/team/pods/p" in str(raised.value)


async def test_a_throttling_server_says_for_how_long(server: tuple[Server, Client]) -> None:
    known, api = server
    known.answer = status(429, "slow down", **{"Retry-After": "7"})
    with pytest.raises(client.TooManyRequestsError) as raised:
        await api.get(kinds.POD, "team", "p")
    assert raised.value.retry_after_s == 7.0


async def test_silence_ends_at_the_timeout(server: tuple[Server, Client]) -> None:
    known, api = server

    async def never(_: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    known.answer = never
    begin = asyncio.get_running_loop().time()
    with pytest.raises(client.UnreachableError):
        await api.get(kinds.POD, "team", "p", timeout_s=0.1)
    assert asyncio.get_running_loop().time() - begin < 2.0


async def test_nobody_there() -> None:
    async with official.ApiClient(official.Configuration(host="http://127.0.0.1:1")) as api:
        with pytest.raises(client.UnreachableError):
            await Client(api).get(kinds.POD, "team", "p")


async def test_no_kubeconfig_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    monkeypatch.setattr(
        "kubernetes.aio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "absent")
    )
    with pytest.raises(client.UnreachableError, match="KUBECONFIG"):
        async with client.connect():
            pass


def test_paths_of_all_namespaces_and_of_one() -> None:
    assert kinds.POD.path(None) == "/api/v1/pods"
    assert kinds.JOB.path("a", "b", "status") == "/apis/batch/v1/namespaces/a/jobs/b/status"
    assert (kinds.POD.group, kinds.POD.version) == ("", "v1")
