"""Which headers pass the sidecar. Hop-by-hop ones end here, the rest goes on unchanged. Pure."""

from collections.abc import Mapping

from multidict import CIMultiDict

from firsttoken_api import names

HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
# Only sidecars may set these; and this hop has already answered an `Expect`.
_NOT_FROM_CLIENTS = frozenset({names.HEADER_TENANT.lower(), names.HEADER_HOP.lower(), "expect"})


def of_request(client: Mapping[str, str], request_id: str) -> CIMultiDict[str]:
    """What the engine gets of a client's headers (a multidict; repeated headers stay repeated)."""
    passed = _end_to_end(client, _NOT_FROM_CLIENTS)
    passed[names.HEADER_REQUEST_ID] = request_id
    return passed


def of_answer(engine: Mapping[str, str], request_id: str) -> CIMultiDict[str]:
    """What the client gets of the engine's headers."""
    passed = _end_to_end(engine, frozenset())
    passed[names.HEADER_REQUEST_ID] = request_id
    return passed


def _end_to_end(headers: Mapping[str, str], also_dropped: frozenset[str]) -> CIMultiDict[str]:
    dropped = HOP_BY_HOP | also_dropped
    named = {
        name.strip().lower()
        for header, value in headers.items()
        if header.lower() == "connection"
        for name in value.split(",")
    }
    passed: CIMultiDict[str] = CIMultiDict()
    for header, value in headers.items():
        lower = header.lower()
        if lower not in dropped and lower not in named:
            passed.add(header, value)
    return passed
