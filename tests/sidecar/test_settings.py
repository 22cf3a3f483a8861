from pathlib import Path

import pytest

from firsttoken_api import names
from firsttoken_api.routing import RoutingStrategy
from firsttoken_sidecar import settings


def test_defaults_are_those_of_the_pod() -> None:
    chosen = settings.read({})
    assert (chosen.http_port, chosen.ops_port) == (names.HTTP_PORT, names.OPS_PORT)
    assert str(chosen.engine_url) == "http://127.0.0.1:8000"
    assert chosen.host is None
    assert chosen.drain_socket == Path(names.DRAIN_SOCKET)
    assert (chosen.deregister_delay_s, chosen.drain_timeout_s) == (10.0, 120.0)


def test_values_are_taken() -> None:
    chosen = settings.read(
        {
            "FIRSTTOKEN_POD_NAME": "chat-1",
            "FIRSTTOKEN_DEREGISTER_DELAY_S": "2.5",
            "FIRSTTOKEN_LOG_LEVEL": "DEBUG",
            "FIRSTTOKEN_LOG_FORMAT": "json",
            "FIRSTTOKEN_MAX_BODY_BYTES": "77",
        }
    )
    assert chosen.pod_name == "chat-1"
    assert chosen.deregister_delay_s == 2.5
    assert (chosen.log_level, chosen.log_format) == ("debug", "json")
    assert chosen.max_body_bytes == 77


def test_peers_are_names_with_commas() -> None:
    assert settings.read({}).peers_hosts == ()
    chosen = settings.read(
        {
            "FIRSTTOKEN_PEERS_HOST": "chat-peers.ns.svc, 127.0.0.3,",
            "FIRSTTOKEN_ROUTING_STRATEGY": "LeastBacklog",
            "FIRSTTOKEN_POD_IP": "10.0.0.7",
            "FIRSTTOKEN_ZONE": "eu-1a",
        }
    )
    assert chosen.peers_hosts == ("chat-peers.ns.svc", "127.0.0.3")
    assert chosen.routing_strategy is RoutingStrategy.LEAST_BACKLOG
    assert (chosen.pod_ip, chosen.zone) == ("10.0.0.7", "eu-1a")


def test_an_empty_value_is_an_absent_one() -> None:
    assert settings.read({"FIRSTTOKEN_DRAIN_TIMEOUT_S": " "}).drain_timeout_s == 120.0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("DEREGISTER_DELAY_S", "ten"),
        ("DEREGISTER_DELAY_S", "-1"),
        ("DRAIN_TIMEOUT_S", "nan"),
        ("DRAIN_TIMEOUT_S", "inf"),
        ("LOG_LEVEL", "loud"),
        ("LOG_FORMAT", "xml"),
        ("HTTP_PORT", "65536"),
        ("OPS_PORT", "9090.0"),
        ("ENGINE_URL", "127.0.0.1:8000"),
        ("ENGINE_OPS_URL", "http://127.0.0.1:9000/path"),
        ("ENGINE_OPS_URL", "http://127.0.0.1:port"),
        ("MAX_BODY_BYTES", "0"),
        ("ROUTING_STRATEGY", "prefix-aware"),
        ("POD_IP", "chat-0"),
    ],
)
def test_a_wrong_value_is_named_with_its_key(key: str, value: str) -> None:
    with pytest.raises(settings.SettingsError, match=rf"^FIRSTTOKEN_{key}: .*{value}"):
        settings.read({f"FIRSTTOKEN_{key}": value})


def test_a_mistyped_key_is_reported() -> None:
    environment = {"FIRSTTOKEN_DRAIN_TIMOUT_S": "1", "FIRSTTOKEN_POD_NAME": "x", "HOME": "/tmp"}
    assert settings.unknown_keys(environment) == ["FIRSTTOKEN_DRAIN_TIMOUT_S"]


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
def test_traces_begin_where_opentelemetry_has_an_endpoint(name: str) -> None:
    assert settings.read({name: "http://collector:4318"}).is_traced
    assert not settings.read({name: " "}).is_traced
    assert not settings.read({}).is_traced


def test_without_a_folder_for_keys_nobody_is_asked_for_one() -> None:
    assert settings.read({"FIRSTTOKEN_AUTH_FOLDER": " "}).auth_folder is None
    assert settings.read({"FIRSTTOKEN_AUTH_FOLDER": "/keys"}).auth_folder == Path("/keys")
