"""The OpenAPI document of the clients' endpoints, generated from what they check and what they build.

Request bodies come from the pydantic models, answers from the typed dicts of `wire`, errors from the error
tree: nothing is said twice, so the document cannot fall behind.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from firsttoken_api import errors, names
from firsttoken_runtime.server import wire
from firsttoken_runtime.server.openai_models import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    ScoreRequest,
    TokenizeChatRequest,
    TokenizePromptRequest,
)

Json = dict[str, Any]

REF = "#/components/schemas/{name}"
STREAMED: Json = {"text/event-stream": {"schema": {"type": "string"}}}

# Path -> what it is, the bodies it takes (one of them), the answer, and whether that may be a stream.
POSTS: dict[str, tuple[str, tuple[type[BaseModel], ...], Any, bool]] = {
    "/v1/chat/completions": ("Answer a chat", (ChatRequest,), wire.ChatCompletion, True),
    "/v1/completions": ("Continue texts", (CompletionRequest,), wire.Completion, True),
    "/v1/score": ("Likelihood of texts", (ScoreRequest,), wire.ScoreList, False),
    "/tokenize": (
        "Token ids of a text or a chat",
        (TokenizePromptRequest, TokenizeChatRequest),
        wire.Tokens,
        False,
    ),
    "/detokenize": ("Text of token ids", (DetokenizeRequest,), wire.Text, False),
}

GETS: dict[str, tuple[str, Any]] = {
    "/v1/models": ("The served model", wire.ModelList),
    "/v1/models/{name}": ("One model", wire.ModelCard),
    "/health": ("Whether requests are answered", None),
    "/openapi.json": ("This document", dict[str, Any]),
}

ON_GET = (errors.UnknownModelError, errors.UnavailableError)
ON_POST = (
    errors.BadRequestError,
    errors.UnknownModelError,
    errors.RequestTooLargeError,
    errors.TooManyRequestsError,
    errors.InternalError,
    errors.UnavailableError,
)

HEADERS: list[Json] = [
    {"name": name, "in": "header", "required": False, "description": description, "schema": schema}
    for name, description, schema in (
        (names.HEADER_REQUEST_ID, "Comes back with the answer; made up when left out", {"type": "string"}),
        (names.HEADER_CLASS, "One of the service's request classes", {"type": "string"}),
        (names.HEADER_ROUTE, "One of the service's routes; also as `<model>:<route>`", {"type": "string"}),
        (
            names.HEADER_TIMING,
            "Whether the answer says where its time to the first token went",
            {"enum": ["true", "false"]},
        ),
    )
]


@cache
def document() -> Json:
    answers = [
        *(answer for _, _, answer, _ in POSTS.values()),
        *(answer for _, answer in GETS.values() if answer is not None),
        errors.ErrorBody,
    ]
    schemas, components = msgspec.json.schema_components(answers, ref_template=REF)
    by_answer = dict(zip(map(str, answers), schemas, strict=True))
    bodies = [body for _, kinds, _, _ in POSTS.values() for body in kinds]
    _, definitions = models_json_schema(
        [(body, "validation") for body in bodies], ref_template=REF.replace("{name}", "{model}")
    )
    clash = components.keys() & definitions["$defs"].keys()
    assert not clash, f"two schemas are named {clash}"
    failed = by_answer[str(errors.ErrorBody)]
    paths: Json = {}
    for path, (summary, kinds, answer, has_stream) in POSTS.items():
        content = {"application/json": {"schema": by_answer[str(answer)]}} | (STREAMED if has_stream else {})
        paths[path] = {
            "post": {
                "summary": summary,
                "parameters": HEADERS,
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": _one_of(kinds)}},
                },
                "responses": {"200": {"description": "Done", "content": content}}
                | _refusals(ON_POST, failed),
            }
        }
    for path, (summary, answer) in GETS.items():
        done: Json = {"description": "Done"}
        if answer is not None:
            done["content"] = {"application/json": {"schema": by_answer[str(answer)]}}
        operation: Json = {"summary": summary, "responses": {"200": done} | _refusals(ON_GET, failed)}
        if "{name}" in path:
            operation["parameters"] = [
                {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
            ]
        paths[path] = {"get": operation}
    return {
        "openapi": "3.1.0",
        "info": {"title": "firsttoken", "version": names.VERSION},
        "paths": paths,
        "components": {"schemas": components | definitions["$defs"]},
    }


def _one_of(kinds: tuple[type[BaseModel], ...]) -> Json:
    refs = [{"$ref": REF.format(name=kind.__name__)} for kind in kinds]
    return refs[0] if len(refs) == 1 else {"anyOf": refs}


def _refusals(kinds: Iterable[type[errors.ApiError]], schema: Json) -> Json:
    return {
        str(kind.status): {
            "description": (kind.__doc__ or "").strip(),
            "content": {"application/json": {"schema": schema}},
        }
        for kind in kinds
    }
