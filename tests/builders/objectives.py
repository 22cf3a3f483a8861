"""Flags documents with objectives and classes, for tests of what is measured against them."""

from firsttoken_api.hot_settings import ClassSettings, HotSettings, Objective


def settings(
    slo_s: float = 0.4,
    window_s: float = 60.0,
    *,
    tpot_s: float | None = None,
    classes: dict[str, float] | None = None,
    default_class: str = "",
) -> HotSettings:
    """`classes`: limits in seconds by name, most urgent first."""
    named = classes or {}
    return HotSettings(
        generation=1,
        flags=(),
        objective=Objective(ttft_p95_s=slo_s, window_s=window_s, tpot_p95_s=tpot_s),
        classes=tuple(
            ClassSettings(name=name, ttft_p99_s=limit_s, priority=-index)
            for index, (name, limit_s) in enumerate(named.items())
        ),
        default_class=default_class,
    )
