"""The client's objects against the API's description, and its calls against the service's routes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from zedlog import AsyncClient, Client
from zedlog.client import client, events, models
from zedlog.client.connection import Connection

ROOT = Path(__file__).resolve().parents[2]
API = json.loads((ROOT / "openapi" / "openapi.json").read_text())
SCHEMAS = API["components"]["schemas"]
# By the schema's name; where ours is None, the answer is handed on as the service gives it.
MODELS: dict[str, type[models.Model]] = {
    "Audit": models.Audit,
    "Column": models.Column,
    "ElapsedMs": models.ElapsedMs,
    "Fault": models.Fault,
    "Job": models.Job,
    "NewToken": models.NewToken,
    "Problem": models.Problem,
    "Readiness": models.Readiness,
    "Relation": models.Relation,
    "RelationChanges": models.RelationChanges,
    "RelationDelta": models.RelationDelta,
    "Rule": models.Rule,
    "Running": models.Running,
    "Stage": models.Stage,
    "Subscription": models.Subscription,
    "Token": models.Token,
    "TransactionResult": models.Commit,
    "TupleCounts": models.TupleCounts,
}
# What only the client knows.
OURS = {"TransactionResult": {"replayed"}}


def kinds(schema: dict[str, Any], known: dict[str, Any]) -> Any:
    """What a schema allows, without names and descriptions. A tuple of any values is the service's list of values; an
    object that is handed on as it is may be described more closely."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return (
            kinds(known[name], known)
            if name not in MODELS and name not in _ours()
            else _ours().get(name, name)
        )
    if "anyOf" in schema:
        return sorted((kinds(one, known) for one in schema["anyOf"]), key=str)
    if schema.get("type") == "array":
        items = schema.get("items", {})
        return (
            ["array"]
            if not items or items.get("type") == "array" or "anyOf" in items
            else ["array", kinds(items, known)]
        )
    if schema.get("type") == "object":
        more = schema.get("additionalProperties")
        return ["object", kinds(more, known)] if isinstance(more, dict) and "$ref" in more else ["object"]
    return [schema.get("type"), *sorted(map(str, schema.get("enum", ())))]


def _ours() -> dict[str, str]:
    return {model.__name__: name for name, model in MODELS.items()}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_what_the_description_says(name: str) -> None:
    theirs, ours = SCHEMAS[name], MODELS[name].model_json_schema()
    extra = OURS.get(name, set())
    assert set(ours["properties"]) - extra == set(theirs["properties"])
    assert set(ours.get("required", ())) == set(theirs.get("required", ()))
    for field, schema in theirs["properties"].items():
        assert kinds(ours["properties"][field], ours.get("$defs", {})) == kinds(schema, SCHEMAS), field


def test_a_difference_would_be_found() -> None:
    column = SCHEMAS["Column"]["properties"]["type"]
    assert kinds(column, SCHEMAS) != kinds({"type": "string"}, {})
    assert kinds({"$ref": "#/$defs/Rule"}, SCHEMAS) != kinds({"$ref": "#/$defs/Relation"}, SCHEMAS)
    assert kinds({"type": "integer"}, {}) != kinds({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {})


def test_a_field_that_a_newer_service_adds_is_kept() -> None:
    rule = models.Rule.model_validate(
        {"id": "r1", "rule": "p(x) :- q(x).", "canonical": "", "weight": 1, "new": 7}
    )
    assert rule.model_dump()["new"] == 7


def test_an_event_of_a_kind_that_only_a_newer_service_knows_is_left_out() -> None:
    assert events.event_of({"event": "newer", "epoch": 1}) is None
    assert events.event_of({"event": "progress", "epoch": 1, "token": "1-a"}) == events.Progress(
        epoch=1, token="1-a"
    )


def test_both_clients_can_do_the_same_and_it_is_written_once() -> None:
    """Every public method of the core is one of both clients, with its signature and its documentation."""
    parts = (*client.Core.__bases__, Connection)
    methods = {
        name for part in parts for name, value in vars(part).items() if callable(value) and name[0] != "_"
    }
    missing = {name for name in methods if not hasattr(Client, name)}
    # How requests are sent and read, for the other methods.
    assert missing == {"events", "exchange", "opened"}
    for name in methods - missing:
        assert getattr(Client, name).__wrapped__ is getattr(client.Core, name), name
        assert getattr(AsyncClient, name) is getattr(client.Core, name), name
        assert getattr(Client, name).__doc__, name
