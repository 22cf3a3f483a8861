"""The sidecar's settings: read from the environment once, at start, and never again.

Every key, its default and its meaning stand in `KEYS`. A value that does not parse ends the process
with the key in the message; a key with our prefix that nobody knows is reported, not dropped in silence.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from yarl import URL

from firsttoken_api import names
from firsttoken_api.routing import RoutingStrategy
from firsttoken_sidecar import engine_address

PREFIX = "FIRSTTOKEN_"
TRACING = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""OpenTelemetry's own variables: with one of them, requests without a trace context get one."""
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")
ENGINES = ("firsttoken", "vllm")


class SettingsError(ValueError):
    """A value of the environment is wrong. The message names the key and what is allowed."""


@dataclass(frozen=True)
class Key:
    """One environment variable."""

    name: str
    default: str
    help: str


POD_NAME = Key("POD_NAME", "", "name of the pod, reported on /state")
DEREGISTER_DELAY_S = Key(
    "DEREGISTER_DELAY_S", "10", "seconds that a draining pod still accepts, until routes have forgotten it"
)
DRAIN_TIMEOUT_S = Key("DRAIN_TIMEOUT_S", "120", "seconds that open streams may go on after that")
LOG_LEVEL = Key("LOG_LEVEL", "info", ", ".join(LOG_LEVELS))
LOG_FORMAT = Key("LOG_FORMAT", "text", " or ".join(LOG_FORMATS))
HOST = Key("HOST", "", "address to listen on; all of them when empty")
HTTP_PORT = Key("HTTP_PORT", str(names.HTTP_PORT), "port of client traffic")
OPS_PORT = Key("OPS_PORT", str(names.OPS_PORT), "port of /state, health and metrics")
ENGINE_URL = Key("ENGINE_URL", f"http://127.0.0.1:{names.ENGINE_HTTP_PORT}", "the engine's API")
ENGINE_OPS_URL = Key("ENGINE_OPS_URL", f"http://127.0.0.1:{names.ENGINE_OPS_PORT}", "the engine's ops port")
ENGINE = Key("ENGINE", "firsttoken", " or ".join(ENGINES))
STARTED_FLAGS = Key("STARTED_FLAGS", "", "optimizations that vLLM's start arguments switch on, with commas")
MAX_NUM_SEQS = Key("MAX_NUM_SEQS", "0", "most sequences that vLLM was started to run at once; 0: not known")
CHUNK_TOKENS = Key("CHUNK_TOKENS", "0", "prompt tokens that a step of vLLM takes at most; 0: not known")
FLAGS_FOLDER = Key("FLAGS_FOLDER", names.FLAGS_FOLDER, "where the flags ConfigMap is mounted")
POD_INFO_FOLDER = Key("POD_INFO_FOLDER", names.POD_INFO_FOLDER, "where the downward API is mounted")
AUTH_FOLDER = Key("AUTH_FOLDER", "", "where the Secret with API keys is mounted; empty: everybody may ask")
PEERS_HOST = Key(
    "PEERS_HOST", "", "name of the other replicas, or several names or addresses with commas; empty: none"
)
ROUTING_STRATEGY = Key(
    "ROUTING_STRATEGY", RoutingStrategy.PREFIX_AWARE.value, ", ".join(each.value for each in RoutingStrategy)
)
POD_IP = Key("POD_IP", "", "address of this replica as peers see it; HOST, or found by itself, when empty")
ZONE = Key("ZONE", "", "topology zone of this replica; from the pod's labels when empty")
DRAIN_SOCKET = Key(
    "DRAIN_SOCKET", names.DRAIN_SOCKET, "Unix socket on which the engine's preStop asks to drain"
)
MAX_BODY_BYTES = Key("MAX_BODY_BYTES", str(20 * 1024 * 1024), "largest request body that is passed on")

KEYS = (
    POD_NAME,
    DEREGISTER_DELAY_S,
    DRAIN_TIMEOUT_S,
    LOG_LEVEL,
    LOG_FORMAT,
    HOST,
    HTTP_PORT,
    OPS_PORT,
    ENGINE_URL,
    ENGINE_OPS_URL,
    ENGINE,
    STARTED_FLAGS,
    MAX_NUM_SEQS,
    CHUNK_TOKENS,
    FLAGS_FOLDER,
    POD_INFO_FOLDER,
    AUTH_FOLDER,
    PEERS_HOST,
    ROUTING_STRATEGY,
    POD_IP,
    ZONE,
    DRAIN_SOCKET,
    MAX_BODY_BYTES,
)


@dataclass(frozen=True)
class Settings:
    """What one sidecar was started with."""

    pod_name: str
    deregister_delay_s: float
    drain_timeout_s: float
    log_level: str
    log_format: str
    host: str | None
    """None: all addresses."""
    http_port: int
    ops_port: int
    engine_url: URL
    engine_ops_url: URL
    engine: str
    started_flags: tuple[str, ...]
    max_num_seqs: int
    chunk_tokens: int
    flags_folder: Path
    pod_info_folder: Path
    auth_folder: Path | None
    """None: everybody may ask."""
    peers_hosts: tuple[str, ...]
    """Empty: there are no peers."""
    routing_strategy: RoutingStrategy
    pod_ip: str | None
    """None: to be found out."""
    zone: str
    drain_socket: Path
    max_body_bytes: int
    is_traced: bool


def read(environment: Mapping[str, str]) -> Settings:
    """Settings from environment variables. Raises SettingsError, naming the key, when one is wrong."""
    return Settings(
        pod_name=_text(environment, POD_NAME),
        deregister_delay_s=_seconds(environment, DEREGISTER_DELAY_S),
        drain_timeout_s=_seconds(environment, DRAIN_TIMEOUT_S),
        log_level=_one_of(environment, LOG_LEVEL, LOG_LEVELS),
        log_format=_one_of(environment, LOG_FORMAT, LOG_FORMATS),
        host=_text(environment, HOST) or None,
        http_port=_integer(environment, HTTP_PORT, minimum=0, maximum=65535),
        ops_port=_integer(environment, OPS_PORT, minimum=0, maximum=65535),
        engine_url=_url(environment, ENGINE_URL),
        engine_ops_url=_url(environment, ENGINE_OPS_URL),
        engine=_one_of(environment, ENGINE, ENGINES),
        started_flags=tuple(filter(None, _text(environment, STARTED_FLAGS).split(","))),
        max_num_seqs=_integer(environment, MAX_NUM_SEQS, minimum=0),
        chunk_tokens=_integer(environment, CHUNK_TOKENS, minimum=0),
        flags_folder=Path(_text(environment, FLAGS_FOLDER)),
        pod_info_folder=Path(_text(environment, POD_INFO_FOLDER)),
        auth_folder=Path(folder) if (folder := _text(environment, AUTH_FOLDER)) else None,
        peers_hosts=_names(environment, PEERS_HOST),
        routing_strategy=_strategy(environment),
        pod_ip=_address(environment, POD_IP),
        zone=_text(environment, ZONE),
        drain_socket=Path(_text(environment, DRAIN_SOCKET)),
        max_body_bytes=_integer(environment, MAX_BODY_BYTES, minimum=1),
        is_traced=any(environment.get(name, "").strip() for name in TRACING),
    )


def unknown_keys(environment: Mapping[str, str]) -> list[str]:
    """Variables with our prefix that no setting reads: most likely a typing error."""
    known = {PREFIX + key.name for key in KEYS}
    return sorted(name for name in environment if name.startswith(PREFIX) and name not in known)


def _text(environment: Mapping[str, str], key: Key) -> str:
    # An empty value counts as absent: that is how a manifest without the field renders.
    return environment.get(PREFIX + key.name, "").strip() or key.default


def _wrong(key: Key, value: str, allowed: str) -> SettingsError:
    return SettingsError(f"{PREFIX}{key.name}: {value!r} is not {allowed} ({key.help})")


def _seconds(environment: Mapping[str, str], key: Key) -> float:
    value = _text(environment, key)
    try:
        seconds = float(value)
    except ValueError:
        raise _wrong(key, value, "a number of seconds") from None
    if not 0 <= seconds <= 86400:
        raise _wrong(key, value, "between 0 and 86400 seconds")
    return seconds


def _integer(environment: Mapping[str, str], key: Key, *, minimum: int, maximum: int = 2**40) -> int:
    value = _text(environment, key)
    try:
        number = int(value)
    except ValueError:
        raise _wrong(key, value, "a whole number") from None
    if not minimum <= number <= maximum:
        raise _wrong(key, value, f"between {minimum} and {maximum}")
    return number


def _one_of(environment: Mapping[str, str], key: Key, allowed: tuple[str, ...]) -> str:
    value = _text(environment, key).lower()
    if value not in allowed:
        raise _wrong(key, value, f"one of {', '.join(allowed)}")
    return value


def _strategy(environment: Mapping[str, str]) -> RoutingStrategy:
    value = _text(environment, ROUTING_STRATEGY)
    try:
        return RoutingStrategy(value)
    except ValueError:
        raise _wrong(ROUTING_STRATEGY, value, f"one of {', '.join(RoutingStrategy)}") from None


def _names(environment: Mapping[str, str], key: Key) -> tuple[str, ...]:
    return tuple(name for each in _text(environment, key).split(",") if (name := each.strip()))


def _address(environment: Mapping[str, str], key: Key) -> str | None:
    value = _text(environment, key)
    if not value:
        return None
    try:
        return str(ipaddress.ip_address(value))
    except ValueError:
        raise _wrong(key, value, "an IP address") from None


def _url(environment: Mapping[str, str], key: Key) -> URL:
    value = _text(environment, key)
    try:
        url = URL(value)
    except ValueError:
        raise _wrong(key, value, "a URL") from None
    if engine_address.is_unix(url) and url.path.startswith("/") and not url.host and not url.query_string:
        return url
    if url.scheme != "http" or not url.host or url.path not in ("", "/") or url.query_string:
        raise _wrong(key, value, "of the form http://host:port or unix:/path")
    return url.origin()
