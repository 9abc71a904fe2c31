"""The API's description (OpenAPI 3.1), made from the app when it is first asked for.

Always: the same code gives the same description. FastAPI describes what it reads itself; this module adds the bodies
that calls parse themselves, and removes FastAPI's own validation error, which no call returns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from engine.errors import BodyTooLargeError
from service import bulk_models, models
from service.access.errors import (
    HostNotAllowedError,
    OriginNotAllowedError,
    ProviderUnavailableError,
    RateLimitedError,
    UnauthorizedError,
)
from service.access.roles import KEY, PUBLIC
from service.describe import example, problems
from service.explain_models import ExplainBody
from service.history_models import RollbackBody, SourceBody
from service.principal import ForbiddenError
from service.problems import PROBLEM_JSON, STATUS, error_classes
from service.routes.tokens import TokenBody

API_VERSION: Final = "1.0"

_DESCRIPTION: Final = """\
Send facts and rules, read derived relations; every change is evaluated incrementally.

A transaction changes facts and rules by integer weights. It is applied as a whole and exactly once, and it is durable
when it is answered. It is part of one **epoch**, and reads see only whole epochs. A read with the `token` of an answer
as its `at_least` sees that epoch or a later one.

Every error is a problem document (RFC 9457) with a stable `code`; `/problems` lists them.
"""

_TAGS: Final = [
    {"name": "transactions", "description": "Change facts and rules; look up the outcome of a change."},
    {"name": "rules", "description": "The rules, and how to add and remove them."},
    {"name": "relations", "description": "Schemas, sizes and tuples."},
    {"name": "query", "description": "Answer conjunctive queries, with named columns."},
    {
        "name": "sparql",
        "description": "SPARQL 1.1 over the relation `triple`, and the store that answers it.",
    },
    {"name": "changes", "description": "What each epoch changes, as it happens; named subscriptions."},
    {"name": "explain", "description": "Why a tuple holds, why it does not, and why it changed."},
    {"name": "history", "description": "When tuples came and went, and through whom; going back."},
    {"name": "sources", "description": "Facts that count for a named source, and are replaced together."},
    {"name": "bulk", "description": "Imports and exports of files through Spark, and their jobs."},
    {"name": "backup", "description": "One epoch as a file, and back into an empty database."},
    {"name": "access", "description": "Tokens: who may read and change what."},
    {"name": "insight", "description": "Circuit, epochs, health, metrics, error codes."},
]

# The bodies that calls read by hand; their models are in no signature that FastAPI sees.
_BODIES: Final = (
    models.TransactionBody,
    models.FactChange,
    models.RuleChange,
    models.ProgramChange,
    models.QueryBody,
    models.SubscriptionBody,
    models.AckBody,
    bulk_models.ImportBody,
    bulk_models.ExportBody,
    ExplainBody,
    RollbackBody,
    SourceBody,
    TokenBody,
)

# What the guard may answer to any call, before its handler is asked.
_GUARD: Final = (HostNotAllowedError, OriginNotAllowedError)
_TOKENS: Final = (
    UnauthorizedError,
    ForbiddenError,
    RateLimitedError,
    ProviderUnavailableError,
    BodyTooLargeError,
)
_PROBLEM: Final = {"$ref": "#/components/schemas/Problem"}


def describe(app: FastAPI) -> None:
    """Make `app.openapi()`, and so `/openapi.json` and `/docs`, return the full description; it is built on first
    use."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _description(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _description(app: FastAPI) -> dict[str, Any]:
    schema = get_openapi(
        title="Zedlog",
        version=API_VERSION,
        summary="Incremental Datalog as a service",
        description=_DESCRIPTION,
        routes=app.routes,
        tags=_TAGS,
    )
    _, bodies = models_json_schema(
        [(model, "validation") for model in _BODIES], ref_template="#/components/schemas/{model}"
    )
    components = schema["components"]["schemas"]
    components.update(bodies["$defs"])
    for operation in _operations(schema):
        _tidy(operation)
        _guard(operation)
    for unused in ("HTTPValidationError", "ValidationError"):
        components.pop(unused, None)
    schema["components"]["schemas"] = dict(sorted(components.items()))
    used = {code for operation in _operations(schema) for code in _codes(operation)}
    errors = {error.code: error for error in error_classes()}
    schema["components"]["examples"] = {code: example(errors[code]) for code in sorted(used)}
    schema["components"]["securitySchemes"] = {
        "token": {
            "type": "http",
            "scheme": "bearer",
            "description": "A token of `zedlog token create`, or a JSON Web Token where the service accepts them. A "
            "service without tokens on the loopback address needs none. `x-zedlog-role` says which role a call needs.",
        }
    }
    return schema


def _operations(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for methods in schema["paths"].values():
        yield from methods.values()


def _codes(operation: dict[str, Any]) -> Iterator[str]:
    """The codes of the problems that a call may return."""
    for response in operation["responses"].values():
        yield from response.get("content", {}).get(PROBLEM_JSON, {}).get("examples", ())


def _tidy(operation: dict[str, Any]) -> None:
    """Remove FastAPI's validation error, and let problem documents have only their own media type."""
    responses = operation["responses"]
    for status, response in list(responses.items()):
        content = response.get("content", {})
        as_json = content.get("application/json", {}).get("schema", {})
        if as_json.get("$ref", "").endswith("/HTTPValidationError"):
            del responses[status]
        elif PROBLEM_JSON in content:
            del content["application/json"]
            content[PROBLEM_JSON]["schema"] = as_json
    operation["responses"] = dict(sorted(responses.items()))


def _guard(operation: dict[str, Any]) -> None:
    """Add what the guard may answer."""
    public = operation[KEY] == PUBLIC
    operation["security"] = [] if public else [{}, {"token": []}]
    responses = operation["responses"]
    for status, response in problems(*_GUARD, *(() if public else _TOKENS)).items():
        if public and status != STATUS[HostNotAllowedError]:
            continue
        known = responses.setdefault(str(status), {"description": "", "content": {PROBLEM_JSON: {}}})
        content = known["content"][PROBLEM_JSON]
        examples = content.setdefault("examples", {})
        examples |= response["content"][PROBLEM_JSON]["examples"]
        content["schema"] = _PROBLEM
        known["description"] = "; ".join(f"`{code}`" for code in examples)
        if "headers" in response:
            known["headers"] = response["headers"]
    if not public:
        responses["401"]["headers"] = {
            "WWW-Authenticate": {"description": "`Bearer`.", "schema": {"type": "string"}}
        }
        responses["429"]["headers"] = {
            "Retry-After": {"description": "Seconds to wait before a retry.", "schema": {"type": "integer"}}
        }
    operation["responses"] = dict(sorted(responses.items()))
