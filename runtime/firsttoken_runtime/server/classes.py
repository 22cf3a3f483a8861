"""Which class a request belongs to, and how long its answer may be when it does not say.

Classes and routes are hot settings. A request names a class by header, or a route by header or as
`<served name>:<route>` in place of the model; a name that is not declared is an error that lists those
that are, because a request in the wrong class would only show as a wrong latency.
"""

from dataclasses import dataclass

from firsttoken_api import errors, names
from firsttoken_api.hot_settings import ClassSettings, HotSettings, RouteSettings


@dataclass(frozen=True)
class Resolved:
    """What the class and the route of a request decide."""

    request_class: str = ""
    """"" when no classes are declared."""
    max_tokens: int | None = None
    """Default length of the answer; None = no default of its own. Only with the flag length-control."""
    ttft_s: float | None = None
    """The objective of the class; None = that of the service."""


class Classes:
    """The classes and routes of one set of hot settings."""

    def __init__(self, settings: HotSettings | None = None) -> None:
        self._classes: dict[str, ClassSettings] = {}
        self._routes: dict[str, RouteSettings] = {}
        self._default_name = ""
        """The first declared one where the settings name none."""
        self._limits_length = False
        if settings is not None:
            self._classes = {one.name: one for one in settings.classes}
            self._routes = {one.name: one for one in settings.routes}
            self._default_name = settings.default_class or next(iter(self._classes), "")
            self._limits_length = any(f.name == "length-control" and f.enabled for f in settings.flags)

    def split_model(self, model: str | None, served_name: str) -> tuple[str | None, str | None]:
        """`<served name>:<route>` -> the name and the route; another name comes back as it is.

        Raises BadRequestError for a route that is not declared.
        """
        prefix = f"{served_name}:"
        if model is None or not model.startswith(prefix):
            return model, None
        route = model.removeprefix(prefix)
        self._route(route, "model")
        return served_name, route

    def resolve(self, class_name: str | None, route_name: str | None) -> Resolved:
        """The class of a request that names a class, a route, both or neither. Raises BadRequestError."""
        route = None if route_name is None else self._route(route_name, names.HEADER_ROUTE)
        name = class_name or (route.request_class if route else None) or self._default_name
        if class_name is not None and class_name not in self._classes:
            raise errors.BadRequestError(
                f"{names.HEADER_CLASS}: {class_name[:64]!r} is not a class of this service; "
                + _allowed("classes", self._classes),
                param=names.HEADER_CLASS,
            )
        declared = self._classes.get(name)
        if declared is None:
            return Resolved(max_tokens=self._length(route, None))
        return Resolved(name, self._length(route, declared), declared.ttft_p99_s)

    def priority_of(self, name: str) -> int:
        """0 for a class that is not declared."""
        return self._classes[name].priority if name in self._classes else 0

    def _length(self, route: RouteSettings | None, declared: ClassSettings | None) -> int | None:
        if not self._limits_length:
            return None
        of_route = route.max_tokens if route else None
        return of_route if of_route is not None else declared.max_tokens if declared else None

    def _route(self, name: str, param: str) -> RouteSettings:
        if name not in self._routes:
            raise errors.BadRequestError(
                f"{param}: {name[:64]!r} is not a route of this service; " + _allowed("routes", self._routes),
                param=param,
            )
        return self._routes[name]


def _allowed(what: str, declared: dict[str, ClassSettings] | dict[str, RouteSettings]) -> str:
    return f"{what} are {', '.join(declared)}" if declared else f"it declares no {what}"
