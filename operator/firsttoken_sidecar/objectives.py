"""What each class of requests is held to, from the flags document. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from firsttoken_api.hot_settings import HotSettings
from firsttoken_sidecar import classes

DEFAULT_ALLOWED_FRACTION = 0.05
"""Of the default class, which is held to the service's P95."""
ALLOWED_FRACTION = 0.01
"""Of any other, which is held to its own P99."""


@dataclass(frozen=True)
class ClassObjective:
    """The limit of a class, and the share of its requests that may be over it."""

    name: str = ""
    limit_s: float | None = None
    """None: no flags document is known yet."""
    allowed_fraction: float = DEFAULT_ALLOWED_FRACTION


@dataclass(frozen=True)
class Objectives:
    """Of all classes. Without declared ones there is one, without a name."""

    by_class: Mapping[str, ClassObjective]
    default_name: str
    window_s: float = 300.0
    tpot_s: float | None = None

    @property
    def default(self) -> ClassObjective:
        return self.by_class[self.default_name]

    @property
    def limits_s(self) -> list[float]:
        return [each.limit_s for each in self.by_class.values() if each.limit_s is not None]


NONE_YET = Objectives({"": ClassObjective()}, "")


def of(settings: HotSettings) -> Objectives:
    """The objectives of a document."""
    default = classes.default_of(settings)
    default_name = default.name if default is not None else ""
    found = {
        each.name: ClassObjective(each.name, each.ttft_p99_s, ALLOWED_FRACTION) for each in settings.classes
    }
    found[default_name] = ClassObjective(default_name, settings.objective.ttft_p95_s)
    return Objectives(found, default_name, settings.objective.window_s, settings.objective.tpot_p95_s)
