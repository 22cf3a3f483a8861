"""One tree of errors, and the form in which clients see them.

    FirsttokenError
    ├── UserError                   a person's input is wrong: one line, exit status 2
    └── ApiError                    becomes an HTTP answer in OpenAI's form
        ├── BadRequestError         400
        ├── UnauthorizedError       401
        ├── UnknownModelError       404
        ├── UnknownRouteError       404
        ├── RequestTimeoutError     408
        ├── RequestTooLargeError    413
        ├── TooManyRequestsError    429, with Retry-After
        │   ├── ObjectiveUnreachableError
        │   └── RateLimitedError
        ├── InternalError           500
        ├── EngineUnreachableError  502
        ├── UnavailableError        503, with Retry-After
        │   ├── ModelLoadingError
        │   ├── DrainingError
        │   ├── OverloadedError
        │   └── KeysUnavailableError
        └── EngineTimeoutError      504

Server and sidecar answer with the same bodies, so that a client cannot tell who refused.
"""

from typing import Any, ClassVar, TypedDict


class ErrorDetail(TypedDict):
    """The inner object of OpenAI's error form."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(TypedDict):
    """OpenAI's error form."""

    error: ErrorDetail


class FirsttokenError(Exception):
    """Any error that we raise on purpose."""


class UserError(FirsttokenError):
    """A person's input is wrong; the message names the option and says what to do. The CLI exits with 2."""

    exit_status: ClassVar[int] = 2


class ApiError(FirsttokenError):
    """An error that is answered to a client. `param` names the field of the request that is wrong."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    code: ClassVar[str | None] = None
    default_retry_after_s: ClassVar[int | None] = None
    """What `Retry-After` says where whoever raises it does not; None: no such header."""

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.detail_code = code if code is not None else type(self).code
        self.retry_after_s = type(self).default_retry_after_s if retry_after_s is None else retry_after_s

    def body(self) -> ErrorBody:
        """The JSON body of the answer."""
        return {
            "error": {
                "message": self.message,
                "type": type(self).type,
                "param": self.param,
                "code": self.detail_code,
            }
        }

    def headers(self) -> dict[str, str]:
        """Headers of the answer beside its content type."""
        return {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}


class BadRequestError(ApiError):
    """The request is malformed or a value is out of range."""

    status = 400
    type = "invalid_request_error"


class UnauthorizedError(ApiError):
    """The API key is missing or wrong."""

    status = 401
    type = "authentication_error"
    code = "invalid_api_key"

    def headers(self) -> dict[str, str]:
        return super().headers() | {"WWW-Authenticate": "Bearer"}


class UnknownModelError(ApiError):
    """No such model is served here."""

    status = 404
    type = "invalid_request_error"
    code = "model_not_found"


class UnknownRouteError(ApiError):
    """No such path."""

    status = 404
    type = "invalid_request_error"
    code = "unknown_url"


class RequestTimeoutError(ApiError):
    """The client stopped sending in the middle of its request."""

    status = 408
    type = "invalid_request_error"
    code = "request_timeout"


class RequestTooLargeError(ApiError):
    """The body is larger than the server reads."""

    status = 413
    type = "invalid_request_error"
    code = "request_too_large"


class TooManyRequestsError(ApiError):
    """The client asks, or leaves unread, more than the server holds for it."""

    status = 429
    type = "rate_limit_error"
    code = "too_many_requests"


class ObjectiveUnreachableError(TooManyRequestsError):
    """The request cannot be served within the objective of its class; later there may be room."""

    code = "objective_unreachable"
    default_retry_after_s = 1


class RateLimitedError(TooManyRequestsError):
    """The API key has used up what it may ask for in a minute."""

    code = "rate_limit_exceeded"
    default_retry_after_s = 1


class InternalError(ApiError):
    """Our mistake; the log has the rest."""

    status = 500
    code = "internal_error"


class EngineUnreachableError(ApiError):
    """The sidecar cannot reach its engine, or the engine broke off."""

    status = 502
    code = "engine_unreachable"


class UnavailableError(ApiError):
    """Not now; another replica, or the same one later, can answer."""

    status = 503
    code = "unavailable"
    default_retry_after_s = 1


class ModelLoadingError(UnavailableError):
    """The model is still being loaded."""

    code = "model_loading"


class DrainingError(UnavailableError):
    """The replica ends and takes no new requests."""

    code = "draining"


class OverloadedError(UnavailableError):
    """The queue is full."""

    code = "overloaded"


class KeysUnavailableError(UnavailableError):
    """The service asks for API keys, and there are none to compare with; nobody is let in unknown."""

    code = "keys_unavailable"


class EngineTimeoutError(ApiError):
    """The engine did not answer in time."""

    status = 504
    code = "engine_timeout"


def is_error_body(body: Any) -> bool:
    """Whether parsed JSON has OpenAI's error form."""
    return (
        isinstance(body, dict)
        and isinstance(body.get("error"), dict)
        and {"message", "type", "param", "code"} <= body["error"].keys()
    )
