"""From the bytes of a body to a checked request, or to the 400 that names what is wrong with it."""

from collections.abc import Iterator
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from firsttoken_api import errors
from firsttoken_runtime.server.openai_models import refused
from firsttoken_runtime.server.openai_models.base import Body, Part

RequestT = TypeVar("RequestT", bound=Body)

# Of pydantic's findings that name an object and mean its discriminator.
TAG_FINDINGS = ("union_tag_invalid", "union_tag_not_found")


def parse(kind: type[RequestT], body: bytes, unknown: refused.UnknownNames) -> RequestT:
    """The checked request. Raises BadRequestError that names the first wrong parameter."""
    try:
        request = kind.model_validate_json(body)
    except ValidationError as error:
        raise _refusal(error, body) from error
    _check_extras(request, unknown)
    request.check()
    return request


def _check_extras(request: Body, unknown: refused.UnknownNames) -> None:
    for name, value in (request.model_extra or {}).items():
        if name in refused.REFUSED:
            refused.REFUSED[name].check(name, value)
        else:
            unknown.warn(name)
    for path, part in _parts(request, ""):
        for name, value in (part.model_extra or {}).items():
            if path.startswith("messages[") and name in refused.REFUSED_IN_MESSAGE:
                refused.REFUSED_IN_MESSAGE[name].check(f"{path}.{name}", value)
            else:
                unknown.warn(f"{path.partition('[')[0]}.{name}")


def _parts(model: BaseModel, path: str) -> Iterator[tuple[str, Part]]:
    """The objects inside a body with their paths, messages first of all."""
    for name in type(model).model_fields:
        where = f"{path}.{name}" if path else name
        value = getattr(model, name)
        inner = enumerate(value) if isinstance(value, list) else ((None, value),)
        for index, one in inner:
            if isinstance(one, Part):
                here = where if index is None else f"{where}[{index}]"
                yield here, one
                yield from _parts(one, here)


def _refusal(error: ValidationError, body: bytes) -> errors.BadRequestError:
    """The deepest of pydantic's findings: for a union it is the member that came closest."""
    found = max(error.errors(include_url=False, include_input=False), key=lambda one: len(one["loc"]))
    try:
        content = from_json(body)
    except ValueError:
        return errors.BadRequestError(f"the body is not a JSON object: {found['msg']}")
    location = found["loc"]
    is_missing = found["type"] in ("missing", "union_tag_not_found")
    if found["type"] in TAG_FINDINGS:
        location = (*location, found["ctx"]["discriminator"].strip("'"))
    param = param_name(location, content, is_missing)
    if not param:
        return errors.BadRequestError(f"the body is not a JSON object: {found['msg']}")
    if is_missing:
        return errors.BadRequestError(f"{param} is required", param=param)
    return errors.BadRequestError(f"{param}: {found['msg']}", param=param)


def param_name(location: tuple[int | str, ...], content: Any, is_missing: bool = False) -> str:
    """`("messages", 0, "user", "content", "list[TextPart]", 1, "text")` -> `messages[0].content[1].text`.

    Pydantic puts the members of unions into the path: what is not in `content` is one of them, or is what
    is missing.
    """
    path = ""
    for depth, part in enumerate(location, 1):
        if isinstance(part, int) and isinstance(content, list) and part < len(content):
            path += f"[{part}]"
        elif isinstance(content, dict) and (part in content or (is_missing and depth == len(location))):
            path += f".{part}" if path else str(part)
        else:
            continue
        content = content.get(part) if isinstance(content, dict) else content[part]
    return path
