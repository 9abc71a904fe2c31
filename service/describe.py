"""What the API's description says about each call besides its shapes: the errors that it may return, and bodies that
the service parses itself.

The problem responses of a call are grouped by status, with an example for each code; so the description lists exactly
the codes that a client of the call may have to handle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from engine.errors import (
    ArityError,
    BodyTooLargeError,
    BudgetExceededError,
    ConstraintViolationError,
    DeclarationError,
    EngineUnavailableError,
    EpochNotRetainedError,
    EvaluationError,
    FixpointNotReachedError,
    IdempotencyConflictError,
    InternalError,
    InvalidRequestError,
    InvalidTokenError,
    InvalidValueError,
    InvalidWeightError,
    NegativeWeightError,
    ProgramSyntaxError,
    SourcedFactError,
    StorageUnavailableError,
    StratificationError,
    TransactionCancelledError,
    TypeMismatchError,
    UnknownPrefixError,
    UnknownTransactionError,
    UnsafeRuleError,
    UnsupportedFeatureError,
    WeightOverflowError,
    ZedlogError,
)
from service.models import Problem
from service.problems import (
    PROBLEM_JSON,
    STATUS,
    InvalidParameterError,
    MalformedJsonError,
    NotAcceptableError,
    UnsupportedMediaTypeError,
    document,
)

Responses = dict[int | str, dict[str, Any]]

EVENTS: dict[str, Any] = {
    "schema": {"type": "string"},
    "itemSchema": {
        "type": "object",
        "properties": {name: {"type": "string"} for name in ("id", "event", "data")},
        "required": ["data"],
    },
}
"""A stream of Server-Sent Events: the whole of it is text, and its items are events."""

BODY_ERRORS = (
    MalformedJsonError,
    InvalidRequestError,
    InvalidParameterError,
    BodyTooLargeError,
    UnsupportedMediaTypeError,
    NotAcceptableError,
)
PROGRAM_ERRORS = (
    ProgramSyntaxError,
    ArityError,
    TypeMismatchError,
    UnknownPrefixError,
    UnsafeRuleError,
    DeclarationError,
    StratificationError,
    UnsupportedFeatureError,
)
STATE_ERRORS = (
    TransactionCancelledError,
    NegativeWeightError,
    SourcedFactError,
    WeightOverflowError,
    ConstraintViolationError,
    EvaluationError,
    FixpointNotReachedError,
    BudgetExceededError,
    IdempotencyConflictError,
    UnknownTransactionError,
)
WRITE_ERRORS = (*BODY_ERRORS, InvalidValueError, InvalidWeightError, *PROGRAM_ERRORS, *STATE_ERRORS)

READ_ERRORS = (
    InvalidParameterError,
    InvalidTokenError,
    EpochNotRetainedError,
    EngineUnavailableError,
    NotAcceptableError,
)


def problems(*errors: type[ZedlogError]) -> Responses:
    """The problem responses for these errors, and for those that every call may return."""
    by_status: dict[int, list[type[ZedlogError]]] = {}
    for error in dict.fromkeys((*errors, StorageUnavailableError, InternalError)):
        by_status.setdefault(STATUS[error], []).append(error)
    return {status: _response(status, found) for status, found in sorted(by_status.items())}


def _response(status: int, errors: list[type[ZedlogError]]) -> dict[str, Any]:
    examples = {e.code: {"$ref": f"#/components/examples/{e.code}"} for e in errors}
    response: dict[str, Any] = {
        "model": Problem,
        "description": "; ".join(f"`{e.code}`" for e in errors),
        "content": {PROBLEM_JSON: {"examples": examples}},
    }
    if status == 503:
        response["headers"] = {
            "Retry-After": {"description": "Seconds to wait before a retry.", "schema": {"type": "integer"}}
        }
    return response


def summary(error: type[ZedlogError]) -> str:
    """The first paragraph of a class's docstring."""
    return " ".join((error.__doc__ or "").split("\n\n")[0].split())


def example(error: type[ZedlogError]) -> dict[str, Any]:
    """A problem document, described once for all calls that may return it."""
    value = document({"code": error.code, "message": summary(error)}, "/v1/...")
    return {"summary": summary(error), "value": value}


def json_body(model: type[BaseModel], examples: Mapping[str, Any]) -> dict[str, Any]:
    """`openapi_extra` of a call that parses its JSON body itself."""
    return body_of({"$ref": f"#/components/schemas/{model.__name__}"}, examples)


def body_of(
    schema: Mapping[str, Any], examples: Mapping[str, Any], others: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The same for any schema; `others` are additional media types."""
    shown = {name: {"value": value} for name, value in examples.items()}
    content = {"application/json": {"schema": dict(schema), "examples": shown}, **(others or {})}
    return {"requestBody": {"required": True, "content": content}}
