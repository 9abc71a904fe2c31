"""Errors as problem documents (RFC 9457): the one table from error class to HTTP status, and the documents.

In: an error of `engine.errors` (or of the few below that only HTTP knows), or what FastAPI raises. Out:
`application/problem+json` with type, title, status, detail, code, instance and the error's own fields.
Always: every class of the tree is listed with its status (a test walks the tree), and every answer with a status of 400
or more is a problem document. `type` is a path of this service that explains the code.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from engine import errors
from engine.errors import InvalidRequestError, ZedlogError, did_you_mean, shown
from service.access import errors as access
from service.principal import ForbiddenError, Principal, principal_of

PROBLEM_JSON = "application/problem+json"

log = logging.getLogger("zedlog.service")


class MalformedJsonError(InvalidRequestError):
    """The body is not JSON. `detail` has the line and the column."""

    code = "malformed_json"


class InvalidParameterError(InvalidRequestError):
    """A query parameter, a path parameter or a header is unknown, or its value is not allowed."""

    code = "invalid_parameter"


class UnsupportedMediaTypeError(ZedlogError):
    """The body's Content-Type or Content-Encoding is not one that this call accepts."""

    code = "unsupported_media_type"


class NotAcceptableError(ZedlogError):
    """The call cannot answer in any of the media types of the Accept header."""

    code = "not_acceptable"


class NotFoundError(ZedlogError):
    """There is no such path."""

    code = "not_found"


class MethodNotAllowedError(ZedlogError):
    """The path does not support this method; the Allow header names those that it supports."""

    code = "method_not_allowed"


# 400: the request is not of the documented form. 422: it is, but its program text or its facts are wrong.
# 409: it is right in itself, but not for the present state of the database.
STATUS: dict[type[ZedlogError], int] = {
    ZedlogError: 500,
    errors.InternalError: 500,
    errors.ProgramError: 422,
    errors.ProgramSyntaxError: 422,
    errors.ArityError: 422,
    errors.TypeMismatchError: 422,
    errors.UnsafeRuleError: 422,
    errors.DeclarationError: 422,
    errors.UnsupportedFeatureError: 422,
    errors.StratificationError: 422,
    errors.UnknownPrefixError: 422,
    InvalidRequestError: 400,
    MalformedJsonError: 400,
    InvalidParameterError: 400,
    errors.InvalidValueError: 400,
    errors.InvalidWeightError: 400,
    errors.InvalidCursorError: 400,
    errors.InvalidTokenError: 400,
    errors.BodyTooLargeError: 413,
    UnsupportedMediaTypeError: 415,
    NotAcceptableError: 406,
    NotFoundError: 404,
    MethodNotAllowedError: 405,
    errors.UnknownRelationError: 404,
    errors.UnknownColumnError: 400,
    errors.UnknownRuleError: 404,
    errors.UnknownTransactionError: 404,
    errors.EpochNotRetainedError: 404,
    errors.NotDeclaredError: 409,
    errors.NegativeWeightError: 409,
    errors.SourcedFactError: 409,
    errors.UnknownSourceError: 404,
    errors.WeightOverflowError: 409,
    errors.ConstraintViolationError: 409,
    # The Idempotency-Key draft of the IETF asks for 422 when a key comes again with another payload.
    errors.IdempotencyConflictError: 422,
    errors.EvaluationError: 422,
    errors.BudgetExceededError: 422,
    errors.FixpointNotReachedError: 422,
    # Nobody reads this answer; in logs and metrics it is known as nginx's "client closed request".
    errors.EvaluationCancelledError: 499,
    errors.StorageUnavailableError: 503,
    errors.EngineUnavailableError: 503,
    errors.SparkUnavailableError: 503,
    errors.SparkStateLostError: 503,
    errors.CheckpointUnavailableError: 503,
    access.UnauthorizedError: 401,
    ForbiddenError: 403,
    access.HostNotAllowedError: 403,
    access.OriginNotAllowedError: 403,
    access.RateLimitedError: 429,
    access.TokenExistsError: 409,
    access.UnknownTokenError: 404,
    access.ProviderUnavailableError: 503,
    errors.PathNotAllowedError: 403,
    errors.SourceUnreadableError: 422,
    errors.SourceUnreachableError: 503,
    errors.SourceRefusedError: 422,
    errors.PackageMissingError: 503,
    errors.StreamGapError: 409,
    errors.HeaderMismatchError: 422,
    errors.BadRowsError: 422,
    errors.TargetExistsError: 409,
    errors.UnknownJobError: 404,
    errors.UnknownAuditError: 404,
    errors.JobNotCancellableError: 409,
    errors.JobCancelledError: 409,
    errors.TransactionCancelledError: 409,
    errors.TransactionNotCancellableError: 409,
    errors.JobAbandonedError: 500,
    errors.BatchUnreadableError: 500,
    errors.BulkStorageError: 507,
    errors.GapError: 410,
    errors.ChangeTooLargeError: 422,
    errors.MeaningChangedError: 409,
    errors.ListenerTooSlowError: 503,
    errors.LimitReachedError: 503,
    errors.UnknownSubscriptionError: 404,
    errors.SubscriptionConflictError: 409,
    errors.SparqlSyntaxError: 400,
    errors.SparqlUnsupportedError: 422,
    errors.SparqlUnavailableError: 503,
    errors.InvalidBackupError: 422,
    errors.NewerBackupError: 422,
    errors.NotEmptyError: 409,
    errors.EngineLeaseError: 503,
    errors.CorruptLogError: 500,
    errors.CorruptSnapshotError: 500,
    errors.ServerStartError: 500,
}


def error_classes(root: type[ZedlogError] = ZedlogError) -> Iterator[type[ZedlogError]]:
    """The root and every class below it."""
    yield root
    for child in root.__subclasses__():
        yield from error_classes(child)


def status_of_code(code: str) -> int:
    """The status for a refusal that the log holds as data. An unknown code, from a newer engine, becomes 422."""
    return next((status for error, status in STATUS.items() if error.code == code), 422)


def title_of(code: str) -> str:
    return code.replace("_", " ").capitalize()


def near(name: str, names: Iterable[str]) -> list[str]:
    """The names that were perhaps meant by `name`, the nearest first."""
    known = list(names)
    folded = {n.casefold(): n for n in known}
    # Two letters that changed places are half of a short name.
    cutoff = 0.5 if len(name) <= 3 else 0.6
    matches = difflib.get_close_matches(name.casefold(), folded, n=3, cutoff=cutoff)
    return [folded[m] for m in matches]


def document(data: Mapping[str, Any], instance: str, status: int | None = None) -> dict[str, Any]:
    """The problem document of `ZedlogError.problem()` data."""
    code = data["code"]
    fields = {
        k: v for k, v in data.items() if k not in ("code", "message", "status", "type", "title", "instance")
    }
    return {
        "type": f"/problems/{code}",
        "title": title_of(code),
        "status": status_of_code(code) if status is None else status,
        "detail": data["message"],
        "code": code,
        "instance": instance,
        **fields,
    }


def respond(data: Mapping[str, Any], instance: str, headers: Mapping[str, str] | None = None) -> Response:
    """A response with the problem document of `ZedlogError.problem()` data."""
    body = document(data, instance)
    # `default=str`: an error's detail is for people; a value that JSON does not know must not hide the error.
    content = orjson.dumps(body, default=str, option=orjson.OPT_NON_STR_KEYS)
    return Response(content, body["status"], headers=dict(headers or {}), media_type=PROBLEM_JSON)


def respond_error(error: ZedlogError, request: Request, headers: Mapping[str, str] | None = None) -> Response:
    """A response for an error raised while `request` was handled."""
    if isinstance(error, errors.UnknownRelationError):
        _hide_names(error, principal_of(request))
    answer = dict(headers or {})
    status = STATUS.get(type(error), 500)
    if status == 503:
        answer.setdefault("Retry-After", str(request.app.state.service.settings.retry_after))
    if isinstance(error, errors.BodyTooLargeError):
        # The rest of the body is not read, so the connection cannot carry another request.
        answer["Connection"] = "close"
    # Probes ask whether all is well again and again; what they are told is logged when it changes.
    if status >= 500 and request.url.path != "/readyz":
        log.error("%s %s: %s: %s", request.method, request.url.path, error.code, error)
    return respond(error.problem(), request.url.path, answer)


def _hide_names(error: errors.UnknownRelationError, principal: Principal) -> None:
    """Take out of the error what relations there are that the principal may not read."""
    names = error.detail.get("near", [])
    seen = list(filter(principal.may_read, names))
    if seen != names:
        hidden, shown_ = did_you_mean(names), did_you_mean(seen)
        error.message = error.message.replace(hidden, shown_)
        error.args, error.detail["near"] = (error.message,), seen
        if "rendered" in error.detail:
            error.detail["rendered"] = error.detail["rendered"].replace(hidden, shown_)


def install(app: FastAPI) -> None:
    """Make every error of `app` a problem document."""
    app.add_exception_handler(ZedlogError, _zedlog_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _internal_error)


async def _zedlog_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ZedlogError)
    return respond_error(error, request)


async def _validation_error(request: Request, error: Exception) -> Response:
    """FastAPI finds only wrong parameters and headers, because the service parses bodies itself."""
    assert isinstance(error, RequestValidationError)
    found = [
        {"parameter": str(e["loc"][-1]), "in": str(e["loc"][0]), "message": _sentence(e)}
        for e in error.errors()
    ]
    text = "; ".join(f"{e['in']} parameter {shown(e['parameter'])}: {e['message']}" for e in found)
    return respond_error(InvalidParameterError(text, errors=found), request)


def _sentence(error: Mapping[str, Any]) -> str:
    if error["type"] == "extra_forbidden":
        return "there is no parameter of that name"
    # Pydantic quotes the values that are allowed as Python does.
    message = str(error["msg"]).replace("'", '"')
    value = error.get("input")
    return f"{message[:1].lower()}{message[1:]}" + (f", not {shown(value)}" if isinstance(value, str) else "")


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == HTTPStatus.NOT_FOUND:
        return respond_error(
            NotFoundError(f"there is no path {request.url.path}; see /openapi.json"), request
        )
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = allowed_methods(request)
        message = (
            f"{request.url.path} does not support {request.method}; its methods are {', '.join(allowed)}"
        )
        return respond_error(
            MethodNotAllowedError(message, allow=allowed), request, {"Allow": ", ".join(allowed)}
        )
    return respond_error(InvalidRequestError(str(error.detail)), request, error.headers)


def allowed_methods(request: Request) -> list[str]:
    """The methods of the request's path. Starlette names only those of the first route that has the path."""
    found: set[str] = set()
    for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        scope = {**request.scope, "method": method}
        if any(route.matches(scope)[0] is Match.FULL for route in request.app.router.routes):
            found.add(method)
    return sorted(found)


async def _internal_error(request: Request, error: Exception) -> Response:
    # Starlette logs the traceback, for it raises the error again after this answer.
    return respond_error(errors.InternalError("the service failed; its log has the details"), request)
