"""Bad input: a problem document that says what is wrong and where; nothing is appended, nothing applied."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.problems import STATUS, error_classes
from tests.service.conftest import Http, problem
from tests.service.fake import FakeClient

EDGE = {"relation": "edge", "tuples": [["a", "b"]]}


def test_every_error_has_a_status_of_its_own() -> None:
    missing = [error.__name__ for error in error_classes() if error not in STATUS]
    assert missing == []
    codes = [error.code for error in STATUS]
    assert len(set(codes)) == len(codes)


def facts(value: Any, weight: Any = 1) -> dict[str, Any]:
    return {"facts": [{"relation": "edge", "tuples": [[value, "b"]], "weight": weight}]}


def rule(text: str) -> dict[str, Any]:
    return {"rules": [{"rule": text}]}


MALFORMED: list[tuple[str, Any, int, str, str]] = [
    ("syntax error", rule("tc(x, y) :- edge(x y)."), 422, "syntax_error", "expected"),
    ("unsafe rule", rule("tc(x, z) :- edge(x, y)."), 422, "unsafe_rule", "z"),
    ("a fact as a rule", rule('edge("a", "b").'), 422, "syntax_error", "fact"),
    ("bad declaration", {"declarations": ".decl edge(x: text)"}, 422, "declaration_conflict", "text"),
    ("a rule as a declaration", {"declarations": "p(x) :- q(x)."}, 422, "syntax_error", ".decl"),
    ("weight 0", facts("a", 0), 400, "invalid_weight", "a weight of 0 changes nothing"),
    ("weight 1.5", facts("a", 1.5), 400, "invalid_weight", "must be an integer, not 1.5"),
    ("weight true", facts("a", True), 400, "invalid_weight", "must be an integer, not true"),
    ("weight '1'", facts("a", "1"), 400, "invalid_weight", "must be an integer"),
    ("weight 2**63", facts("a", 2**63), 400, "invalid_weight", "9223372036854775808 is too large"),
    ("weight -2**63", facts("a", -(2**63)), 400, "invalid_weight", "-9223372036854775808 is too large"),
    ("weight 2**70", facts("a", 2**70), 400, "invalid_weight", f"{2**70} is too large"),
    ("number 2**63", facts(2**63), 400, "invalid_value", f"{2**63} does not fit into 64 bits"),
    ("number 2**64", facts(2**64), 400, "invalid_value", f"{2**64} does not fit into 64 bits"),
    ("number -2**63-1", facts(-(2**63) - 1), 400, "invalid_value", f"{-(2**63) - 1} does not fit"),
    ("null", facts(None), 400, "invalid_value", "null is not a symbol"),
    ("nested list", facts(["a"]), 400, "invalid_value", '["a"] is not a symbol'),
    (
        "tuple is no list",
        {"facts": [{"relation": "e", "tuples": ["ab"]}]},
        400,
        "invalid_request",
        "must be a list",
    ),
    (
        "no tuples",
        {"facts": [{"relation": "e"}]},
        400,
        "invalid_request",
        'facts[0] lacks the field "tuples"',
    ),
    ("no relation", {"facts": [{"tuples": []}]}, 400, "invalid_request", 'lacks the field "relation"'),
    (
        "empty relation",
        {"facts": [{"relation": "", "tuples": []}]},
        400,
        "invalid_request",
        "must not be empty",
    ),
    ("facts is an object", {"facts": EDGE}, 400, "invalid_request", "facts must be a list"),
    ("fact is a string", {"facts": ["x"]}, 400, "invalid_request", "facts[0] must be a JSON object"),
    ("rule is a string", {"rules": ["x"]}, 400, "invalid_request", "rules[0] must be a JSON object"),
    (
        "rule text is a number",
        {"rules": [{"rule": 1}]},
        400,
        "invalid_request",
        "rules[0].rule must be a string, not 1",
    ),
    ("facts is null", {"facts": None}, 400, "invalid_request", "facts must be a list, not null"),
    (
        "a name is a number",
        {"undeclare": ["r", 1]},
        400,
        "invalid_request",
        "undeclare[1] must be a string, not 1",
    ),
    (
        "a misspelt field is also a missing one",
        {"facts": [{"relation": "e", "tupels": []}]},
        400,
        "invalid_request",
        'facts[0] has an unknown field "tupels"; it may have "relation", "tuples", "weight". Did you mean "tuples"?',
    ),
    ("misspelt field", {"fact": []}, 400, "invalid_request", 'Did you mean "facts"?'),
    (
        "misspelt weight",
        {"facts": [{**EDGE, "wieght": -1}]},
        400,
        "invalid_request",
        'Did you mean "weight"?',
    ),
    ("unknown mode", {"mode": "bag"}, 400, "invalid_request", 'mode must be "zset" or "set", not "bag"'),
    ("mode is a list", {"mode": []}, 400, "invalid_request", "mode must be"),
    (
        "declarations is a number",
        {"declarations": 1},
        400,
        "invalid_request",
        "declarations must be program text",
    ),
    ("body is a list", [], 400, "invalid_request", "the body must be a JSON object"),
]


@pytest.mark.parametrize(
    ("body", "status", "code", "message"), [m[1:] for m in MALFORMED], ids=[m[0] for m in MALFORMED]
)
def test_malformed_transactions_are_not_appended(
    http: Http, database: FakeClient, body: Any, status: int, code: str, message: str
) -> None:
    document = problem(http.post("/v1/transactions", body), status, code)
    assert message in document["detail"]
    assert database.log == []


def test_a_syntax_error_shows_the_place(http: Http) -> None:
    body = {"rules": [{"rule": "p(x) :- e(x)."}, {"rule": "tc(x, y) :-\n  edge(x y)."}]}
    document = problem(http.post("/v1/transactions", body), 422, "syntax_error")
    assert (document["line"], document["column"], document["source"]) == (2, 10, "  edge(x y).")
    assert document["where"] == "rules[1].rule"
    assert document["rendered"].splitlines()[1:] == ["    edge(x y).", "           ^"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the body is empty"),
        (b"{", "line 1, column 2"),
        (b'{"facts": nan}', "line 1, column 11"),
        (b'{"facts": "\\ud800"}', "surrogate"),
        (b"\xff\xfe", "line 1, column 1"),
        (b"[" * 5000, "depth"),
    ],
)
def test_what_is_not_json_is_a_400_with_its_place(
    http: Http, database: FakeClient, content: bytes, message: str
) -> None:
    json_type = {"content-type": "application/json"}
    response = http.request("POST", "/v1/transactions", content=content, headers=json_type)
    document = problem(response, 400, "malformed_json")
    assert message in document["detail"]
    assert database.log == []


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400"])
def test_what_is_not_finite_is_an_invalid_value(http: Http, database: FakeClient, number: str) -> None:
    body = json.dumps(facts(1.5, "@")).replace('"@"', number)
    document = problem(http.request("POST", "/v1/transactions", content=body), 400, "invalid_value")
    assert "a float must be finite" in document["detail"]
    assert document["line"] == 1
    assert database.log == []


def test_an_absurdly_long_integer_is_refused(http: Http, database: FakeClient) -> None:
    body = json.dumps(facts("@")).replace('"@"', "1" * 300)
    document = problem(http.request("POST", "/v1/transactions", content=body), 400, "invalid_value")
    assert "does not fit into 64 bits" in document["detail"]
    assert database.log == []


@pytest.mark.parametrize(
    ("body", "status", "code", "message"),
    [
        ({"facts": [{**EDGE, "weight": -2}]}, 409, "negative_weight", "('a', 'b')"),
        ({"facts": [{"relation": "edge", "tuples": [["a"]]}]}, 422, "arity_mismatch", "edge has 2 columns"),
        ({"facts": [{"relation": "edge", "tuples": [["a", 1]]}]}, 422, "type_mismatch", "edge"),
        ({"facts": [{"relation": "edge", "tuples": [["a", True]]}]}, 422, "type_mismatch", "bool"),
        ({"rules": [{"rule": "p(x) :- edge(x)."}]}, 422, "arity_mismatch", "edge"),
        ({"rules": [{"rule": "p(x) :- edge(x, 1)."}]}, 422, "type_mismatch", "edge"),
        ({"declarations": ".decl edge(x: symbol)"}, 422, "declaration_conflict", "edge"),
    ],
)
def test_what_does_not_fit_the_database_is_refused_whole(
    graph: Http, database: FakeClient, body: Any, status: int, code: str, message: str
) -> None:
    body = {**body, "facts": [{"relation": "other", "tuples": [[1]]}, *body.get("facts", [])]}
    response = graph.post("/v1/transactions", body)
    if code == "declaration_conflict":
        assert response.json()["code"] in (code, "arity_mismatch")
        code = response.json()["code"]
    document = problem(response, status, code)
    assert message in document["detail"]
    assert database.epoch == 1
    problem(graph.get("/v1/relations/other"), 404, "unknown_relation")


class TestSize:
    def test_a_declared_length_over_the_limit_is_refused_unread(
        self, http: Http, database: FakeClient
    ) -> None:
        response = http.post("/v1/facts", {"relation": "edge", "tuples": [["a", "b" * 100_000]]})
        document = problem(response, 413, "body_too_large")
        assert document["limit"] == 100_000
        assert response.headers["connection"] == "close"
        assert database.log == []

    def test_a_chunked_body_is_read_up_to_the_limit_only(self, http: Http, database: FakeClient) -> None:
        sent = 0

        async def chunks() -> Any:
            nonlocal sent
            while sent < 10_000_000:
                sent += 1000
                yield b" " * 1000

        problem(http.request("POST", "/v1/facts", content=chunks()), 413, "body_too_large")
        assert sent == 101_000
        assert database.log == []

    def test_a_body_at_the_limit_passes(self, http: Http) -> None:
        body = json.dumps(EDGE).ljust(100_000)
        assert http.request("POST", "/v1/facts", content=body).status_code == 200


class TestProtocol:
    @pytest.mark.parametrize(
        "headers",
        [
            {"content-type": "application/x-www-form-urlencoded"},
            {"content-type": "text/plain"},
            {"content-type": "application/json; charset=utf-16"},
            {"content-type": "application/json", "content-encoding": "gzip"},
        ],
    )
    def test_other_media_types(self, http: Http, database: FakeClient, headers: dict[str, str]) -> None:
        response = http.request("POST", "/v1/transactions", content=b"{}", headers=headers)
        assert problem(response, 415, "unsupported_media_type")["accepted"] == ["application/json"]
        assert database.log == []

    def test_text_that_is_not_utf8(self, http: Http, database: FakeClient) -> None:
        response = http.request("POST", "/v1/rules", content=b"p\xff", headers={"content-type": "text/plain"})
        assert "byte 1" in problem(response, 400, "invalid_value")["detail"]
        assert database.log == []

    def test_an_unknown_path(self, http: Http) -> None:
        assert "/v2/facts" in problem(http.get("/v2/facts"), 404, "not_found")["detail"]

    def test_a_method_that_the_path_lacks(self, http: Http) -> None:
        response = http.request("PUT", "/v1/rules")
        assert problem(response, 405, "method_not_allowed")["allow"] == ["GET", "POST"]
        assert response.headers["allow"] == "GET, POST"

    @pytest.mark.parametrize(
        ("url", "message"),
        [
            (
                "/v1/transactions?dryrun=true",
                'no parameter "dryrun"; it has dry_run, message, placement, return, strategy, wait. '
                'Did you mean "dry_run"?',
            ),
            ("/v1/transactions?dry_run=perhaps", "dry_run"),
            ("/v1/transactions?return=all", "return"),
            ("/v1/transactions?wait=true&wait=false", '"wait" is given twice'),
            ("/v1/facts?mode=bag", "mode"),
            ("/v1/query?limit=1", "it has none"),
        ],
    )
    def test_parameters(self, http: Http, database: FakeClient, url: str, message: str) -> None:
        assert message in problem(http.post(url, EDGE), 400, "invalid_parameter")["detail"]
        assert database.log == []

    @pytest.mark.parametrize("key", ["", "two words", "x" * 256])
    def test_idempotency_keys(self, http: Http, database: FakeClient, key: str) -> None:
        response = http.post("/v1/facts", EDGE, headers={"Idempotency-Key": key})
        assert "Idempotency-Key" in problem(response, 400, "invalid_parameter")["detail"]
        assert database.log == []

    def test_a_fault_of_our_own_is_a_problem_too(self, http: Http, database: FakeClient) -> None:
        database.states = None  # type: ignore[assignment]
        document = problem(http.get("/v1/rules"), 500, "internal_error")
        assert "log" in document["detail"]


class TestUnavailable:
    def test_redis_away_is_a_503_and_the_service_comes_back(self, graph: Http, database: FakeClient) -> None:
        database.redis_away = True
        calls = [
            graph.post("/v1/facts", EDGE),
            graph.get("/v1/rules"),
            graph.get("/v1/relations/edge/facts"),
            graph.post("/v1/query", {"query": "edge(x, y)"}),
            graph.get("/v1/epochs"),
            graph.get("/readyz"),
        ]
        for response in calls:
            problem(response, 503, "storage_unavailable")
            assert int(response.headers["retry-after"]) >= 1
        assert graph.get("/readyz").json()["missing"] == ["redis"]
        assert graph.get("/healthz").json() == {"status": "ok"}
        database.redis_away = False
        assert graph.post("/v1/facts", EDGE).json()["epoch"] == 2
        assert len(database.log) == 2

    def test_redis_away_after_the_append_is_a_202(self, http: Http, database: FakeClient) -> None:
        append = database.append

        async def append_then_go(*arguments: Any) -> Any:
            receipt = await append(*arguments)
            database.redis_away = True
            return receipt

        database.append = append_then_go  # type: ignore[method-assign]
        response = http.post("/v1/facts", EDGE)
        assert response.status_code == 202
        database.redis_away = False
        assert http.get(response.headers["location"]).json()["status"] == "committed"

    def test_no_engine_is_not_ready_but_reads_go_on(self, graph: Http, database: FakeClient) -> None:
        database.engine_runs = False
        document = problem(graph.get("/readyz"), 503, "engine_unavailable")
        assert (document["missing"], document["engine"]) == (["engine"], "absent")
        assert len(graph.get("/v1/relations/tc/facts").json()["tuples"]) == 4
        database.engine_runs = True
        assert graph.get("/readyz").json() == {
            "status": "ready",
            "database": "default",
            "engine": "running",
            "epoch": 1,
            "lag": 0,
            "audits": {"full": None, "start": None},
            "recovered": None,
            "running": None,
            "faults": 0,
            "last_fault": None,
        }
