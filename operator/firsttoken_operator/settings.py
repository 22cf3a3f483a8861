"""The operator's environment, read once at start.

The chart sets every variable; a wrong value fails at once with its name in the message, so that a typing
error in `values.yaml` is a line in the log of a pod that does not start, not an odd behaviour later.
"""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from firsttoken_api import flags

WatchScope = Literal["cluster", "namespaced"]
LogFormat = Literal["text", "json"]


class SettingsError(ValueError):
    """An environment variable holds something we cannot use."""


@dataclass(frozen=True)
class Images:
    """What model pods are rendered from when the spec does not say."""

    runtime: str
    sidecar: str
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Settings:
    """Everything the operator takes from outside."""

    images: Images
    watch_scope: WatchScope = "namespaced"
    watch_namespaces: tuple[str, ...] = ("default",)
    force_flags_off: frozenset[str] = frozenset()
    log_level: str = "INFO"
    log_format: LogFormat = "text"
    metrics_port: int = 8081
    health_port: int = 8082
    scrape_interval_s: float = 5.0
    namespace: str = "default"
    identity: str = "firsttoken-operator"
    workers: int = 8


def from_environment(environment: Mapping[str, str]) -> Settings:
    """Settings from `FIRSTTOKEN_*`, `POD_NAMESPACE` and `POD_NAME`. SettingsError names the variable."""
    namespace = environment.get("POD_NAMESPACE", "default")
    scope = _choice(environment, "FIRSTTOKEN_WATCH_SCOPE", "namespaced", ("cluster", "namespaced"))
    namespaces = _words(environment, "FIRSTTOKEN_WATCH_NAMESPACES")
    forced_off = _words(environment, "FIRSTTOKEN_FORCE_FLAGS_OFF")
    for name in forced_off:
        if name not in flags.BY_NAME:
            known = ", ".join(flags.BY_NAME)
            raise SettingsError(f"FIRSTTOKEN_FORCE_FLAGS_OFF: {name!r} is no flag ({known})")
    return Settings(
        images=Images(
            runtime=_required(environment, "FIRSTTOKEN_RUNTIME_IMAGE"),
            sidecar=_required(environment, "FIRSTTOKEN_SIDECAR_IMAGE"),
            pull_policy=_choice(
                environment,
                "FIRSTTOKEN_IMAGE_PULL_POLICY",
                "IfNotPresent",
                ("Always", "IfNotPresent", "Never"),
            ),
            pull_secrets=_words(environment, "FIRSTTOKEN_IMAGE_PULL_SECRETS"),
        ),
        watch_scope=cast(WatchScope, scope),
        watch_namespaces=() if scope == "cluster" else namespaces or (namespace,),
        force_flags_off=frozenset(forced_off),
        log_level=_choice(
            environment, "FIRSTTOKEN_LOG_LEVEL", "INFO", ("DEBUG", "INFO", "WARNING", "ERROR"), upper=True
        ),
        log_format=cast(LogFormat, _choice(environment, "FIRSTTOKEN_LOG_FORMAT", "text", ("text", "json"))),
        metrics_port=_number(environment, "FIRSTTOKEN_METRICS_PORT", 8081, 1, 65535),
        health_port=_number(environment, "FIRSTTOKEN_HEALTH_PORT", 8082, 1, 65535),
        scrape_interval_s=_number(environment, "FIRSTTOKEN_SCRAPE_INTERVAL_S", 5, 1, 300),
        namespace=namespace,
        # Two processes with one name would both believe they hold the lease.
        identity=environment.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}",
    )


def _required(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "").strip()
    if not value:
        raise SettingsError(f"{name} must name an image")
    return value


def _words(environment: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in environment.get(name, "").split(",") if word.strip())


def _choice(
    environment: Mapping[str, str], name: str, default: str, allowed: tuple[str, ...], upper: bool = False
) -> str:
    value = environment.get(name, "").strip() or default
    value = value.upper() if upper else value
    if value not in allowed:
        raise SettingsError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")
    return value


def _number(environment: Mapping[str, str], name: str, default: int, minimum: int, maximum: int) -> int:
    text = environment.get(name, "").strip() or str(default)
    if not text.isdecimal() or not minimum <= int(text) <= maximum:
        raise SettingsError(f"{name} must be a whole number from {minimum} to {maximum}, not {text!r}")
    return int(text)
