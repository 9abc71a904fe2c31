"""Reads: relations, tuples by bound columns, pages, epochs, and goals. Expected tuples are worked out by
hand."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pytest

from service.formats import ROW_TYPES
from service.models import FactsPage, QueryPage, RelationAt, Relations
from tests.service.conftest import Http, problem
from tests.service.fake import FakeClient

CLOSURE = [["a", "b"], ["a", "c"], ["b", "c"], ["c", "c"]]
EDGE = {"relation": "edge", "tuples": [["a", "b"]]}


def pages(http: Http, url: str, limit: int) -> tuple[list[list[Any]], set[int]]:
    """All rows of a cursor chain, and the epochs that its pages read."""
    rows, epochs, cursor = [], set(), None
    while True:
        parameters = {"limit": limit} | ({"cursor": cursor} if cursor else {})
        page = http.get(url, params=parameters).json()
        assert len(page["tuples"]) <= limit
        rows += page["tuples"]
        epochs.add(page["epoch"])
        cursor = page["cursor"]
        if cursor is None:
            return rows, epochs


class TestRelations:
    def test_all(self, graph: Http) -> None:
        listing = Relations.model_validate(graph.get("/v1/relations").json())
        assert [
            (r.relation, r.counts.all, r.counts.asserted, r.counts.derived) for r in listing.relations
        ] == [
            ("edge", 3, 3, 0),
            ("tc", 4, 0, 4),
        ]

    def test_one(self, graph: Http) -> None:
        relation = RelationAt.model_validate(graph.get("/v1/relations/tc").json())
        assert [(c.name, c.type) for c in relation.columns] == [("x", "symbol"), ("y", "symbol")]
        assert relation.declared is False

    def test_an_unknown_one_names_its_neighbours(self, graph: Http) -> None:
        for url in ("/v1/relations/egde", "/v1/relations/egde/facts"):
            document = problem(graph.get(url), 404, "unknown_relation")
            assert document["near"] == ["edge"]
            assert 'Did you mean "edge"?' in document["detail"]
        assert problem(graph.get("/v1/relations/zzz"), 404, "unknown_relation")["near"] == []


class TestFacts:
    def test_all_of_a_relation(self, graph: Http) -> None:
        page = graph.get("/v1/relations/tc/facts").json()
        assert FactsPage.model_validate(page).cursor is None
        assert page["tuples"] == CLOSURE
        assert (page["epoch"], page["token"]) == (1, "1-5f2c09b1")
        assert page["columns"] == [{"name": "x", "type": "symbol"}, {"name": "y", "type": "symbol"}]
        assert "weights" not in page

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ("x=a", [["a", "b"], ["a", "c"]]),
            ("where.x=a", [["a", "b"], ["a", "c"]]),
            ("y=c&x=b", [["b", "c"]]),
            ("x=nobody", []),
        ],
    )
    def test_bound_columns(self, graph: Http, query: str, expected: list[list[str]]) -> None:
        assert graph.get(f"/v1/relations/tc/facts?{query}").json()["tuples"] == expected

    def test_values_are_read_by_the_type_of_their_column(self, http: Http) -> None:
        http.post("/v1/transactions", {"declarations": ".decl r(n: number, f: float, b: bool, s: symbol)"})
        rows = [[1, 1.5, True, "1"], [-2, 1e300, False, ""], [3, -0.25, True, "true"]]
        http.post("/v1/facts", {"relation": "r", "tuples": rows})
        for query, index in [("n=-2", 1), ("f=1.5", 0), ("b=false", 1), ("s=1", 0), ("s=", 1), ("s=true", 2)]:
            assert http.get(f"/v1/relations/r/facts?{query}").json()["tuples"] == [rows[index]], query
        for query in (
            "n=1.0",
            "n=x",
            "n=9223372036854775808",
            "n=",
            "f=nan",
            "f=inf",
            "f=x",
            "f=1_0",
            "f=1e999",
            "f=9007199254740993",
            "b=1",
            "b=True",
        ):
            document = problem(http.get(f"/v1/relations/r/facts?{query}"), 400, "invalid_value")
            assert document["column"] == query[0]

    def test_a_column_called_like_a_parameter(self, http: Http) -> None:
        http.post("/v1/transactions", {"declarations": ".decl page(limit: number, cursor: symbol)"})
        http.post("/v1/facts", {"relation": "page", "tuples": [[1, "p"], [2, "q"]]})
        url = "/v1/relations/page/facts"
        assert len(http.get(f"{url}?limit=2").json()["tuples"]) == 2
        assert http.get(f"{url}?where.limit=2").json()["tuples"] == [[2, "q"]]
        assert http.get(f"{url}?where.cursor=p&limit=5").json()["tuples"] == [[1, "p"]]

    def test_an_unknown_column_names_the_others(self, graph: Http) -> None:
        document = problem(graph.get("/v1/relations/tc/facts?z=a"), 400, "unknown_column")
        assert document["columns"] == ["x", "y"]
        assert "tc(x: symbol, y: symbol)" in document["detail"]

    def test_a_column_bound_twice(self, graph: Http) -> None:
        for query in ("x=a&x=b", "x=a&where.x=a"):
            assert (
                "twice"
                in problem(graph.get(f"/v1/relations/tc/facts?{query}"), 400, "invalid_parameter")["detail"]
            )

    def test_own_parameters_come_once(self, graph: Http) -> None:
        document = problem(graph.get("/v1/relations/tc/facts?limit=1&limit=2"), 400, "invalid_parameter")
        assert '"limit" is given twice' in document["detail"]

    def test_domains(self, graph: Http) -> None:
        graph.post("/v1/facts", {"relation": "tc", "tuples": [["a", "b"], ["z", "z"]], "weight": 2})
        url = "/v1/relations/tc/facts?domain="
        asserted = graph.get(f"{url}asserted").json()
        assert (asserted["tuples"], asserted["weights"]) == ([["a", "b"], ["z", "z"]], [2, 2])
        assert graph.get(f"{url}derived").json()["tuples"] == CLOSURE
        assert graph.get(f"{url}all").json()["tuples"] == [*CLOSURE, ["z", "z"]]
        problem(graph.get(f"{url}other"), 400, "invalid_parameter")

    @pytest.mark.parametrize("limit", ["0", "-1", "x", "100001", "5001"])
    def test_limits(self, graph: Http, limit: str) -> None:
        document = problem(graph.get(f"/v1/relations/tc/facts?limit={limit}"), 400, "invalid_parameter")
        assert "limit" in document["detail"]

    def test_a_column_without_a_type_binds_nothing(self, http: Http) -> None:
        http.post("/v1/rules", {"rule": "p(x) :- q(x)."})
        assert http.get("/v1/relations/q/facts?x=1").json()["tuples"] == []
        assert http.get("/v1/relations/q").json()["columns"][0]["type"] is None


class TestCursors:
    @pytest.mark.parametrize("limit", [1, 2, 3, 4, 5])
    def test_a_chain_gives_every_tuple_once(self, graph: Http, limit: int) -> None:
        assert pages(graph, "/v1/relations/tc/facts", limit) == (CLOSURE, {1})

    def test_a_chain_stays_in_its_epoch(self, graph: Http) -> None:
        first = graph.get("/v1/relations/tc/facts?limit=2").json()
        graph.post("/v1/facts", {**EDGE, "weight": -1})
        second = graph.get("/v1/relations/tc/facts", params={"limit": 2, "cursor": first["cursor"]}).json()
        assert first["tuples"] + second["tuples"] == CLOSURE
        assert second["epoch"] == 1
        assert graph.get("/v1/relations/tc/facts").json()["tuples"] == [["b", "c"], ["c", "c"]]

    @pytest.mark.parametrize(
        "url",
        [
            "/v1/relations/edge/facts?limit=1",
            "/v1/relations/tc/facts?limit=1&x=a",
            "/v1/relations/tc/facts?limit=1&domain=derived",
        ],
    )
    def test_the_cursor_of_another_query(self, graph: Http, url: str) -> None:
        cursor = graph.get("/v1/relations/tc/facts?limit=1").json()["cursor"]
        document = problem(graph.get(f"{url}&cursor={cursor}"), 400, "invalid_cursor")
        assert "another query" in document["detail"]

    def test_of_a_goal_and_of_facts_are_not_exchanged(self, graph: Http) -> None:
        cursor = graph.get("/v1/relations/tc/facts?limit=1").json()["cursor"]
        response = graph.post("/v1/query", {"query": "tc(x, y)", "cursor": cursor})
        assert "another query" in problem(response, 400, "invalid_cursor")["detail"]

    def test_damage_is_found(self, graph: Http) -> None:
        cursor = graph.get("/v1/relations/tc/facts?limit=1").json()["cursor"]
        assert all(c.isalnum() or c in "-_" for c in cursor)
        for i in range(len(cursor)):
            damaged = cursor[:i] + ("A" if cursor[i] != "A" else "B") + cursor[i + 1 :]
            response = graph.get(f"/v1/relations/tc/facts?limit=1&cursor={damaged}")
            # The last character may hold bits that belong to no byte.
            assert response.status_code == 400 or i == len(cursor) - 1
        for text in ("x", "%C3%A4", cursor[:-4], cursor + "AAAA", "===="):
            problem(graph.get(f"/v1/relations/tc/facts?cursor={text}"), 400, "invalid_cursor")

    def test_of_another_database(self, graph: Http, database: FakeClient) -> None:
        cursor = graph.get("/v1/relations/tc/facts?limit=1").json()["cursor"]
        database.incarnation_id = "00000000"
        response = graph.get(f"/v1/relations/tc/facts?cursor={cursor}")
        assert "another database" in problem(response, 400, "invalid_cursor")["detail"]

    def test_whose_epoch_is_gone(self, graph: Http, database: FakeClient) -> None:
        cursor = graph.get("/v1/relations/tc/facts?limit=1").json()["cursor"]
        graph.post("/v1/facts", EDGE)
        database.oldest = 2
        problem(graph.get(f"/v1/relations/tc/facts?cursor={cursor}"), 404, "epoch_not_retained")


class TestEpochs:
    def test_as_of_reads_the_past(self, graph: Http) -> None:
        graph.post("/v1/facts", {**EDGE, "weight": -1})
        assert len(graph.get("/v1/relations/tc/facts?as_of=1").json()["tuples"]) == 4
        assert len(graph.get("/v1/relations/tc/facts?as_of=2").json()["tuples"]) == 2
        assert graph.get("/v1/rules?as_of=0").json()["rules"] == []
        problem(graph.get("/v1/relations/tc/facts?as_of=0"), 404, "unknown_relation")
        problem(graph.get("/v1/relations/tc/facts?as_of=3"), 404, "epoch_not_retained")
        problem(graph.get("/v1/relations?as_of=-1"), 400, "invalid_parameter")

    def test_at_least_waits_for_an_epoch(self, graph: Http, database: FakeClient) -> None:
        assert graph.get("/v1/relations/tc?at_least=1-5f2c09b1").json()["epoch"] == 1
        database.engine_runs = False
        graph.post("/v1/facts?wait=false", EDGE)
        response = graph.get("/v1/relations/tc?at_least=2-5f2c09b1")
        assert "epoch 2" in problem(response, 503, "engine_unavailable")["detail"]
        assert "retry-after" in response.headers

    def test_at_least_does_not_wait_for_what_cannot_come(self, graph: Http, database: FakeClient) -> None:
        for url in ("/v1/relations/tc", "/v1/relations/tc/facts", "/v1/rules", "/v1/circuit"):
            document = problem(graph.get(f"{url}?at_least=2-5f2c09b1"), 404, "epoch_not_retained")
            assert document["newest"] == 1
        query = {"query": "tc(x, y)", "at_least": "999-5f2c09b1"}
        problem(graph.post("/v1/query", query), 404, "epoch_not_retained")

    @pytest.mark.parametrize("token", ["x", "1", "1-00000000", "01-5f2c09b1", "-1-5f2c09b1"])
    def test_bad_tokens(self, graph: Http, token: str) -> None:
        problem(graph.get(f"/v1/relations/tc?at_least={token}"), 400, "invalid_token")

    def test_contradictions(self, graph: Http) -> None:
        graph.post("/v1/facts", EDGE)
        document = problem(graph.get("/v1/rules?as_of=1&at_least=2-5f2c09b1"), 400, "invalid_parameter")
        assert "older" in document["detail"]
        cursor = graph.get("/v1/relations/tc/facts?limit=1&as_of=1").json()["cursor"]
        problem(graph.get(f"/v1/relations/tc/facts?as_of=2&cursor={cursor}"), 400, "invalid_cursor")
        assert graph.get(f"/v1/relations/tc/facts?as_of=1&cursor={cursor}").json()["epoch"] == 1

    def test_the_list_of_epochs(self, graph: Http) -> None:
        for _ in range(4):
            graph.post("/v1/facts", EDGE)
        first = graph.get("/v1/epochs?limit=3").json()
        assert ([e["epoch"] for e in first["epochs"]], first["before"]) == ([5, 4, 3], 3)
        second = graph.get(f"/v1/epochs?limit=3&before={first['before']}").json()
        assert ([e["epoch"] for e in second["epochs"]], second["before"]) == ([2, 1], None)


class TestQuery:
    @pytest.mark.parametrize(
        ("goal", "columns", "rows"),
        [
            ("tc(x, y)", ["x", "y"], CLOSURE),
            ('tc(x, "c")', ["x"], [["a"], ["b"], ["c"]]),
            ('tc("a", who).', ["who"], [["b"], ["c"]]),
            ("?- tc(v, v)", ["v"], [["c"]]),
            ("tc(x, _)", ["x"], [["a"], ["b"], ["c"]]),
            ("tc(_, y)", ["y"], [["b"], ["c"]]),
            ('tc("zz", y)', ["y"], []),
            ('tc("a", "c")', [], [[]]),
            ('tc("c", "a")', [], []),
            ("tc(_, _)", [], [[]]),
        ],
    )
    def test_goals(self, graph: Http, goal: str, columns: list[str], rows: list[list[str]]) -> None:
        answer = graph.post("/v1/query", {"query": goal}).json()
        QueryPage.model_validate(answer)
        assert [c["name"] for c in answer["columns"]] == columns
        assert answer["tuples"] == rows
        assert answer.get("holds") == (None if columns else bool(rows))

    def test_repeated_variables_and_wildcards_together(self, http: Http) -> None:
        rows = [[1, 2, 1, 9], [1, 2, 1, 8], [1, 2, 2, 7], [3, 3, 3, 3], [5, 3, 5, 0]]
        http.post("/v1/facts", {"relation": "r", "tuples": rows})
        answer = http.post("/v1/query", {"query": "r(x, y, x, _)"}).json()
        assert answer["tuples"] == [[1, 2], [3, 3], [5, 3]]
        assert answer["columns"] == [{"name": "x", "type": "number"}, {"name": "y", "type": "number"}]
        assert http.post("/v1/query", {"query": "r(x, x, x, x)"}).json()["tuples"] == [[3]]

    @pytest.mark.parametrize("goal", ["r(x, y)", "r(x, _)", "r(x, x)"])
    @pytest.mark.parametrize("limit", [1, 7, 100])
    @pytest.mark.parametrize("cached", [True, False])
    def test_pages_are_distinct_complete_and_of_one_epoch(
        self, http: Http, goal: str, limit: int, cached: bool
    ) -> None:
        if not cached:
            http.app.state.service.projections.capacity = 0
        rows = [[i % 10, j] for i in range(10) for j in range(12)]
        http.post("/v1/facts", {"relation": "r", "tuples": rows})
        expected = {
            "r(x, y)": sorted(rows),
            "r(x, _)": [[i] for i in range(10)],
            "r(x, x)": [[i] for i in range(10)],
        }
        found, cursor = [], None
        while True:
            answer = http.post("/v1/query", {"query": goal, "limit": limit, "cursor": cursor}).json()
            assert answer["epoch"] == 1
            found += answer["tuples"]
            cursor = answer["cursor"]
            http.post("/v1/facts", {"relation": "r", "tuples": [[len(found) + 50, 1]]})
            if cursor is None:
                break
        assert found == expected[goal]

    @pytest.mark.parametrize(
        ("body", "status", "code", "message"),
        [
            ({"query": "tc(x y)"}, 422, "syntax_error", ""),
            ({"query": "tc(x, y), edge(x y)"}, 422, "syntax_error", ""),
            ({"query": "ct(x, y)"}, 404, "unknown_relation", 'Did you mean "tc"?'),
            ({"query": "tc(x)"}, 422, "arity_mismatch", "tc(x: symbol, y: symbol) has 2 columns"),
            (
                {"query": "tc(x, 1)"},
                422,
                "type_mismatch",
                "column 2 (y) of tc holds symbols, but 1 is a number",
            ),
            ({"query": "tc(x, y + 1)"}, 422, "unsafe_rule", "the variable y in a computed argument"),
            ({"query": 7}, 400, "invalid_request", "query must be a string"),
            ({}, 400, "invalid_request", 'lacks the field "query"'),
            (
                {"query": "tc(x, y)", "limit": 0},
                400,
                "invalid_request",
                "limit must be an integer of at least 1",
            ),
            ({"query": "tc(x, y)", "limit": True}, 400, "invalid_request", "limit"),
            ({"query": "tc(x, y)", "limit": 5001}, 400, "invalid_parameter", "maximum of 5000"),
            ({"query": "tc(x, y)", "as_of": 1.0}, 400, "invalid_request", "as_of"),
            ({"query": "tc(x, y)", "as_of": 7}, 404, "epoch_not_retained", "7"),
            ({"query": "tc(x, y)", "lmit": 1}, 400, "invalid_request", 'Did you mean "limit"?'),
            ({"query": "tc(x, y)", "cursor": "zz"}, 400, "invalid_cursor", "damaged"),
        ],
    )
    def test_bad_goals(self, graph: Http, body: Any, status: int, code: str, message: str) -> None:
        assert message in problem(graph.post("/v1/query", body), status, code)["detail"]

    def test_a_variable_cannot_be_of_two_types(self, http: Http) -> None:
        http.post("/v1/facts", {"relation": "r", "tuples": [[1, "a"]]})
        problem(http.post("/v1/query", {"query": "r(x, x)"}), 422, "type_mismatch")


class TestFormats:
    def test_ndjson(self, graph: Http) -> None:
        response = graph.post(
            "/v1/query", {"query": 'tc("a", y)'}, headers={"accept": "application/x-ndjson"}
        )
        assert response.text == '{"y":"b"}\n{"y":"c"}\n'
        assert response.headers["zedlog-epoch"] == "1"
        assert response.headers["zedlog-token"] == "1-5f2c09b1"
        assert "zedlog-cursor" not in response.headers

    def test_csv(self, http: Http) -> None:
        http.post(
            "/v1/facts", {"relation": "r", "tuples": [['say "hi", you', 1, True], ["two\nlines", 2, False]]}
        )
        response = http.get("/v1/relations/r/facts", headers={"accept": "text/csv"})
        expected = 'c0,c1,c2\r\n"say ""hi"", you",1,true\r\n"two\nlines",2,false\r\n'
        assert response.text == expected
        assert response.headers["content-type"] == "text/csv; charset=utf-8"

    def test_arrow(self, http: Http) -> None:
        http.post("/v1/facts", {"relation": "r", "tuples": [["a", 1, 1.5, True], ["b", 2, 2.5, False]]})
        arrow = {"accept": "application/vnd.apache.arrow.stream"}
        response = http.get("/v1/relations/r/facts?limit=1", headers=arrow)
        table = pa.ipc.open_stream(io.BytesIO(response.content)).read_all()
        assert table.to_pylist() == [{"c0": "a", "c1": 1, "c2": 1.5, "c3": True}]
        assert [str(t) for t in table.schema.types] == ["string", "int64", "double", "bool"]
        following = http.get(
            f"/v1/relations/r/facts?cursor={response.headers['zedlog-cursor']}", headers=arrow
        )
        assert pa.ipc.open_stream(io.BytesIO(following.content)).read_all().num_rows == 1

    @pytest.mark.parametrize(
        ("accept", "kind"),
        [
            ("*/*", "application/json"),
            ("text/*", "text/csv"),
            ("text/csv;q=0.5, application/json;q=0.4", "text/csv"),
            ("application/json;q=0, */*", "application/x-ndjson"),
            ("text/html, application/xhtml+xml, */*;q=0.8", "application/json"),
        ],
    )
    def test_the_accept_header_chooses(self, graph: Http, accept: str, kind: str) -> None:
        response = graph.get("/v1/relations/tc/facts", headers={"accept": accept})
        assert response.headers["content-type"].split(";")[0] == kind

    @pytest.mark.parametrize(
        "accept", ["image/png", "text/html, image/*", "*/*;q=0", "application/*;q=0, text/csv;q=0", "a;q=nan"]
    )
    def test_what_cannot_be_answered(self, graph: Http, accept: str) -> None:
        response = graph.get("/v1/relations/tc/facts", headers={"accept": accept})
        assert problem(response, 406, "not_acceptable")["offered"] == list(ROW_TYPES)

    def test_no_call_answers_in_a_type_that_is_not_accepted(self, graph: Http, database: FakeClient) -> None:
        described = graph.get("/openapi.json").json()["paths"]
        calls = [(m, path) for path in described if path.startswith("/v1/") for m in described[path]]
        assert len(calls) > 15
        for method, path in calls:
            url = path.format(
                relation="tc",
                rule_id="r1",
                transaction_id="1-0",
                job_id="j1",
                code="x",
                name="x",
                source="hr",
                audit_id="a1",
            )
            response = graph.request(method.upper(), url, headers={"accept": "image/png"}, json=EDGE)
            assert problem(response, 406, "not_acceptable")["offered"], (method, path)
            assert "406" in described[path][method]["responses"], (method, path)
        assert database.epoch == 1
        assert graph.get("/healthz", headers={"accept": "image/png"}).status_code == 200
