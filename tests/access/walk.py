"""Walks every read of the API's description, with every value that its parameters could usefully have."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import httpx

Call = Callable[..., httpx.Response]

# Their answers do not end by themselves, unless they are asked not to follow.
FEEDS = ("/v1/changes", "/v1/subscriptions/{name}/changes")

QUERIES = (
    "{r}({v})",
    "x = 1, {r}({v})",
    "tc(x, y); {r}({v})",
    "tc(x, y), !{r}({w})",
    "n = count : {{ {r}({w}) }}",
    "tc(x, _), n = count : {{ tc(x, _), {r}({w}) }}",
    "n = count : {{ tc(x, _), m = count : {{ {r}({w}) }} }}",
    "m = max a : {{ {r}({v}) }}",
    "q({v}) :- {r}({v})",
    "tc({v}) :- {r}({v})",
    "q(count(a)) :- {r}({v})",
    "q(n) :- n = count : {{ {r}({w}) }}",
    "tc(x, y), !({r}({w}), x = y)",
)
"""Each reads {r}; {v} are distinct variables in its columns, {w} wildcards."""


def queries(relation: str, arity: int) -> list[str]:
    variables = ", ".join("abcdefgh"[:arity])
    return [q.format(r=relation, v=variables, w=", ".join("_" * arity)) for q in QUERIES]


def reads(description: Mapping[str, Any], values: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, str]]:
    """(operation, path) of all GET calls; values: of the parameters in paths, and of the query parameters that are no
    enumerations."""
    for path, methods in description["paths"].items():
        if "get" not in methods:
            continue
        names = re.findall(r"\{(\w+)\}", path)
        if path in FEEDS:
            continue
        queries = [""]
        for parameter in methods["get"].get("parameters", ()):
            if parameter["in"] == "query":
                schemas = [parameter["schema"], *parameter["schema"].get("anyOf", ())]
                allowed = [v for schema in schemas for v in schema.get("enum", ())]
                queries += [f"?{parameter['name']}={v}" for v in allowed or values.get(parameter["name"], ())]
        for chosen in itertools.product(*(values[name] for name in names)):
            place = path.format(**dict(zip(names, chosen, strict=True)))
            yield from ((f"GET {path}", place + query) for query in queries)


def found(
    call: Call,
    description: Mapping[str, Any],
    values: Mapping[str, Sequence[Any]],
    hidden: Mapping[str, int],
    secrets: Sequence[str],
) -> dict[str, list[str]]:
    """By operation, the requests whose answers hold a secret that the request itself does not have. hidden: the arities
    of relations that queries try to read."""
    leaks: dict[str, list[str]] = {}

    def look(operation: str, request: str, answer: httpx.Response) -> None:
        assert answer.status_code < 500, (request, answer.text)
        seen = answer.text + str(dict(answer.headers))
        if any(secret in seen and secret not in request for secret in secrets):
            leaks.setdefault(operation, []).append(f"{request}: {answer.text[:300]}")

    for operation, path in reads(description, values):
        for accept in ("*/*", "text/csv"):
            look(operation, path, call("GET", path, headers={"accept": accept}))
    for relation, arity in hidden.items():
        for query in queries(relation, arity):
            look("POST /v1/query", query, call("POST", "/v1/query", json={"query": query}))
            asked = {"query": query, "follow": "false", "snapshot": "true"}
            look("GET /v1/changes", query, call("GET", "/v1/changes", params=asked))
        for after in values["as_of"]:
            asked = {"relation": relation, "follow": "false", "after": str(after)}
            look("GET /v1/changes", str(asked), call("GET", "/v1/changes", params=asked))
    for name in values["name"]:
        path = f"/v1/subscriptions/{name}/changes"
        look(f"GET {FEEDS[1]}", path, call("GET", path, params={"follow": "false"}))
    for goal in values["goal"]:
        for more in ({}, {"all": True}, {"format": "text"}, *({"changed_at": e} for e in values["as_of"])):
            body = {"tuple": goal, **more}
            look("POST /v1/explain", str(body), call("POST", "/v1/explain", json=body))
    return leaks
