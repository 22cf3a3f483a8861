"""The operator's only door to the API server: the official asynchronous client, typed, with one error tree.

Nothing else imports the client library, so its exceptions, its response wrappers and its five-minute default
timeout stay here. Every call has a timeout.

    ApiError                 anything the API server or the way to it refused
      UnreachableError       no answer, or not in time: nothing is known about what happened
      NotFoundError          404
      ConflictError          409: the object exists, has another uid or was changed meanwhile
      RefusedError           400, 401, 403, 422: asking again will not help
      TooManyRequestsError   429, with the server's Retry-After
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from kubernetes.aio import client as official
from kubernetes.aio import config, dynamic

from firsttoken_operator import kinds

Object = dict[str, Any]
"""An API object as JSON."""

REQUEST_TIMEOUT_S = 30.0
LIST_CHUNK = 500
USER_AGENT = "firsttoken-operator"


class ApiError(Exception):
    """The API server, or the way to it, refused."""

    def __init__(self, message: str, status: int = 0, detail: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.detail = detail or message
        """What the server said, without the request."""


class UnreachableError(ApiError):
    """No answer, or not in time."""


class NotFoundError(ApiError):
    """404."""


class ConflictError(ApiError):
    """409."""


class RefusedError(ApiError):
    """400, 401, 403 or 422."""


class TooManyRequestsError(ApiError):
    """429."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message, 429)
        self.retry_after_s = retry_after_s


class Client:
    """Reads and writes of namespaced objects as plain JSON. Raises ApiError."""

    def __init__(self, api: official.ApiClient) -> None:
        self._dynamic = dynamic.DynamicClient(api)  # type: ignore[no-untyped-call]

    async def get(
        self, kind: kinds.Kind, namespace: str, name: str, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> Object:
        return await self._request("get", kind.path(namespace, name), timeout_s=timeout_s)

    async def list(
        self,
        kind: kinds.Kind,
        namespace: str | None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        metadata_only: bool = False,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> list[Object]:
        """All objects of a kind, in chunks. `metadata_only`: names, uids and versions, for comparing."""
        accept = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
        items: list[Object] = []
        token: str | None = None
        while True:
            page = await self._request(
                "get",
                kind.path(namespace),
                timeout_s=timeout_s,
                header_params=dict(accept) if metadata_only else {},
                label_selector=label_selector,
                field_selector=field_selector,
                limit=LIST_CHUNK,
                _continue=token,
            )
            items.extend(page.get("items") or ())  # null where there are none
            token = page["metadata"].get("continue")
            if not token:
                return items

    async def create(
        self,
        kind: kinds.Kind,
        body: Object,
        *,
        field_manager: str | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> Object:
        return await self._request(
            "post",
            kind.path(body["metadata"]["namespace"]),
            body=body,
            field_manager=field_manager,
            timeout_s=timeout_s,
        )

    async def replace(
        self, kind: kinds.Kind, body: Object, *, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> Object:
        metadata = body["metadata"]
        path = kind.path(metadata["namespace"], metadata["name"])
        return await self._request("put", path, body=body, timeout_s=timeout_s)

    async def apply(
        self,
        kind: kinds.Kind,
        body: Object,
        *,
        field_manager: str,
        subresource: str | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> Object:
        """Server-side apply, with force: what we state is ours."""
        metadata = body["metadata"]
        return await self._request(
            "patch",
            kind.path(metadata["namespace"], metadata["name"], subresource),
            body=body,
            content_type="application/apply-patch+yaml",
            field_manager=field_manager,
            force_conflicts=True,
            timeout_s=timeout_s,
        )

    async def merge(
        self,
        kind: kinds.Kind,
        namespace: str,
        name: str,
        body: Object,
        *,
        field_manager: str | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> Object:
        """JSON merge patch."""
        return await self._request(
            "patch",
            kind.path(namespace, name),
            body=body,
            content_type="application/merge-patch+json",
            field_manager=field_manager,
            timeout_s=timeout_s,
        )

    async def edit(
        self,
        kind: kinds.Kind,
        namespace: str,
        name: str,
        operations: Sequence[Object],
        *,
        field_manager: str | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> Object:
        """JSON patch: `operations` are `test`, `replace` and so on."""
        return await self._request(
            "patch",
            kind.path(namespace, name),
            body=[*operations],
            content_type="application/json-patch+json",
            field_manager=field_manager,
            timeout_s=timeout_s,
        )

    async def delete(
        self,
        kind: kinds.Kind,
        namespace: str,
        name: str,
        uid: str,
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        """Delete this very object (by uid), its dependents in the background. Gone already is fine."""
        body = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        try:
            await self._request("delete", kind.path(namespace, name), body=body, timeout_s=timeout_s)
        except NotFoundError:
            return

    async def _request(self, method: str, path: str, *, timeout_s: float, **parameters: Any) -> Object:
        # Mutable defaults inside the library would otherwise be shared between calls.
        parameters.setdefault("header_params", {})
        parameters["query_params"] = []
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._dynamic.request(
                    method, path, serialize=False, _request_timeout=timeout_s, **parameters
                )
                async with response:
                    answer: Object = await response.json()
        except official.ApiException as error:
            raise _mapped(error, method, path) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnreachableError(f"{method} {path}: {error or type(error).__name__}") from error
        return answer


def _mapped(error: official.ApiException, method: str, path: str) -> ApiError:
    status = int(error.status or 0)
    detail = _message(error.body) or str(error.reason)
    message = f"{method} {path}: {status} {detail}"
    if status == 404:
        return NotFoundError(message, status, detail)
    if status == 409:
        return ConflictError(message, status, detail)
    if status == 429:
        headers: Mapping[str, str] = error.headers or {}
        retry_after = headers.get("Retry-After", "1")
        return TooManyRequestsError(message, float(retry_after) if retry_after.isdecimal() else 1.0)
    if status in {400, 401, 403, 422}:
        return RefusedError(message, status, detail)
    return ApiError(message, status, detail)


def _message(body: str | bytes | None) -> str:
    if not body:
        return ""
    try:
        status = json.loads(body)
    except ValueError:
        return body.decode(errors="replace")[:200] if isinstance(body, bytes) else body[:200]
    return str(status.get("message", "")) if isinstance(status, dict) else ""


def _is_in_cluster() -> bool:
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and not os.environ.get("KUBECONFIG")


def current_namespace() -> str:
    """The namespace of the kubeconfig's context; `default` where none is named."""
    if _is_in_cluster():
        return "default"
    try:
        _, active = config.list_kube_config_contexts()  # type: ignore[no-untyped-call]
    except config.ConfigException:
        return "default"
    return str((active.get("context") or {}).get("namespace") or "default")


@asynccontextmanager
async def connect() -> AsyncIterator[Client]:
    """A client from the pod's service account, or outside from KUBECONFIG. ApiError without either."""
    configuration = official.Configuration()
    if _is_in_cluster():
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    else:
        try:
            await config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        except config.ConfigException as error:
            raise UnreachableError(f"no cluster: {error}; set KUBECONFIG") from error
    async with official.ApiClient(configuration) as api:
        api.user_agent = USER_AGENT
        yield Client(api)
