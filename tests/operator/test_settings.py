"""The environment, read once; a wrong value names its variable."""

import pytest

from firsttoken_operator import settings

GOOD = {"FIRSTTOKEN_RUNTIME_IMAGE": "r:1", "FIRSTTOKEN_SIDECAR_IMAGE": "s:1"}


def test_what_the_chart_sets() -> None:
    chosen = settings.from_environment(
        GOOD
        | {
            "FIRSTTOKEN_WATCH_SCOPE": "namespaced",
            "FIRSTTOKEN_WATCH_NAMESPACES": "a, b,",
            "FIRSTTOKEN_FORCE_FLAGS_OFF": "chunked-prefill",
            "FIRSTTOKEN_IMAGE_PULL_SECRETS": "one,two",
            "FIRSTTOKEN_LOG_LEVEL": "debug",
            "FIRSTTOKEN_LOG_FORMAT": "json",
            "POD_NAME": "operator-1",
            "POD_NAMESPACE": "system",
        }
    )
    assert chosen.watch_namespaces == ("a", "b")
    assert chosen.force_flags_off == {"chunked-prefill"}
    assert chosen.images.pull_secrets == ("one", "two")
    assert (chosen.log_level, chosen.log_format) == ("DEBUG", "json")
    assert (chosen.identity, chosen.namespace) == ("operator-1", "system")


def test_namespaced_without_a_list_watches_its_own_namespace() -> None:
    assert settings.from_environment(GOOD | {"POD_NAMESPACE": "team"}).watch_namespaces == ("team",)


def test_cluster_scope_has_no_namespaces() -> None:
    chosen = settings.from_environment(
        GOOD | {"FIRSTTOKEN_WATCH_SCOPE": "cluster", "FIRSTTOKEN_WATCH_NAMESPACES": "a"}
    )
    assert chosen.watch_namespaces == ()


def test_two_processes_outside_a_pod_are_told_apart() -> None:
    assert settings.from_environment(GOOD).identity not in ("", "firsttoken-operator")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FIRSTTOKEN_RUNTIME_IMAGE", " "),
        ("FIRSTTOKEN_WATCH_SCOPE", "everywhere"),
        ("FIRSTTOKEN_FORCE_FLAGS_OFF", "page-kv"),
        ("FIRSTTOKEN_IMAGE_PULL_POLICY", "Sometimes"),
        ("FIRSTTOKEN_LOG_LEVEL", "loud"),
        ("FIRSTTOKEN_METRICS_PORT", "0"),
        ("FIRSTTOKEN_SCRAPE_INTERVAL_S", "5s"),
    ],
)
def test_a_wrong_value_names_its_variable(name: str, value: str) -> None:
    with pytest.raises(settings.SettingsError, match=name):
        settings.from_environment(GOOD | {name: value})
