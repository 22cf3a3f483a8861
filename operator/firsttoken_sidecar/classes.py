"""Which class of the flags document a request belongs to. Pure.

Asked for by header, else that of its route, else the default one; as the engine resolves it, since both
have the same document. A key's ceiling lowers it. A name that nobody declared is the engine's to refuse.
"""

from collections.abc import Mapping

from firsttoken_api import names
from firsttoken_api.hot_settings import ClassSettings, HotSettings, RouteSettings


def default_of(settings: HotSettings) -> ClassSettings | None:
    """The class of requests that name none; None where no classes are declared."""
    if not settings.classes:
        return None
    named = by_name(settings, settings.default_class)
    return named if named is not None else settings.classes[0]


def by_name(settings: HotSettings, name: str) -> ClassSettings | None:
    return next((each for each in settings.classes if each.name == name), None)


def route_name(headers: Mapping[str, str], model: str) -> str:
    """From the header, else from a model name `<served>:<route>`; empty when there is none."""
    return headers.get(names.HEADER_ROUTE, "") or model.partition(":")[2]


def asked(headers: Mapping[str, str], model: str, settings: HotSettings) -> str:
    """Name of the class that a request asks for, known or not; empty where none are declared."""
    if name := headers.get(names.HEADER_CLASS, ""):
        return name
    route = _route(settings, route_name(headers, model))
    if route is not None and route.request_class is not None:
        return route.request_class
    default = default_of(settings)
    return default.name if default is not None else ""


def resolve(headers: Mapping[str, str], model: str, settings: HotSettings) -> ClassSettings | None:
    """The class that a request asks for; None when it is not declared, or none are."""
    return by_name(settings, asked(headers, model, settings))


def lowered(name: str, max_class: str, settings: HotSettings) -> str:
    """The class `name`, or the ceiling where that is less urgent. A ceiling that the document does not
    declare is the least urgent class: a key whose class was renamed does not become an urgent one."""
    if not max_class or not settings.classes:
        return name
    ceiling = by_name(settings, max_class) or min(settings.classes, key=lambda each: each.priority)
    wanted = by_name(settings, name)
    return ceiling.name if wanted is not None and wanted.priority > ceiling.priority else name


def _route(settings: HotSettings, name: str) -> RouteSettings | None:
    return next((each for each in settings.routes if each.name == name), None)
