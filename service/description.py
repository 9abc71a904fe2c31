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

from service import bulk_models, models
from service.problems import PROBLEM_JSON

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
    {"name": "explain", "description": "Why a tuple holds, why it does not, and why it changed."},
    {"name": "bulk", "description": "Imports and exports of files through Spark, and their jobs."},
    {"name": "insight", "description": "Circuit, epochs, health, metrics, error codes."},
]

# The bodies that calls read by hand; their models are in no signature that FastAPI sees.
_BODIES: Final = (
    models.TransactionBody,
    models.FactChange,
    models.RuleChange,
    models.ProgramChange,
    models.QueryBody,
    bulk_models.ImportBody,
    bulk_models.ExportBody,
)


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
    for unused in ("HTTPValidationError", "ValidationError"):
        components.pop(unused, None)
    schema["components"]["schemas"] = dict(sorted(components.items()))
    return schema


def _operations(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for methods in schema["paths"].values():
        yield from methods.values()


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
