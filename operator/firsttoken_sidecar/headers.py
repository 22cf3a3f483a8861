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
_NOT_FOR_CLIENTS = frozenset({names.HEADER_STAMPS.lower()})
_STAMPS = {"": "stamps", "false": "stamps", "true": "true,stamps"}
"""What asks the engine for its stamps, by what the client asks for."""


def of_request(client: Mapping[str, str], request_id: str) -> CIMultiDict[str]:
    """What goes on of a client's headers (a multidict; repeated headers stay repeated)."""
    passed = _end_to_end(client, _NOT_FROM_CLIENTS)
    passed[names.HEADER_REQUEST_ID] = request_id
    return passed


def ask_for_stamps(passed: CIMultiDict[str]) -> None:
    """Has whoever answers say where its time went. A value that is not valid stays: the engine refuses it."""
    asked = passed.get(names.HEADER_TIMING, "")
    passed[names.HEADER_TIMING] = _STAMPS.get(asked, asked)


def wants_timing(client: Mapping[str, str]) -> bool:
    """Whether the client wants to know what its time to the first token consisted of."""
    return "true" in client.get(names.HEADER_TIMING, "").split(",")


def for_engine(passed: CIMultiDict[str], tenant: str, *, hides_key: bool) -> CIMultiDict[str]:
    """A copy for the engine of this pod: it knows tenants and no keys. `hides_key`: the key was ours."""
    known = passed.copy()
    if hides_key:
        known.popall("Authorization", None)
    if tenant:
        known[names.HEADER_TENANT] = tenant
    return known


def of_answer(engine: Mapping[str, str], request_id: str, *, is_forwarded: bool = False) -> CIMultiDict[str]:
    """What the client gets of the engine's headers. `is_forwarded`: the client is a peer."""
    passed = _end_to_end(engine, frozenset() if is_forwarded else _NOT_FOR_CLIENTS)
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
