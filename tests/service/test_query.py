"""`POST /v1/query` with more than one atom: answers, pages, formats, limits of time and size, and clients that go."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from typing import Any

import pyarrow as pa
import pytest

from engine.errors import BudgetExceededError, EvaluationCancelledError
from engine.maintenance.placement import Budget
from service import evaluation
from service.app import create_app
from service.models import QueryPage
from service.settings import Settings
from tests.service.conftest import GRAPH, Http, problem
from tests.service.fake import FakeClient

CROSS = "tc(x, y), tc(z, w)"


def ask(http: Http, query: str, **fields: Any) -> dict[str, Any]:
    response = http.post("/v1/query", {"query": query, **fields})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    QueryPage.model_validate(answer)
    return answer


# edge: a -> b -> c -> c; tc adds a -> c.
@pytest.mark.parametrize(
    ("query", "columns", "rows"),
    [
        ("tc(x, y), !edge(x, y)", ["x", "y"], [["a", "c"]]),
        ('tc("a", x), n = count : { edge(x, _) }, n > 0', ["x", "n"], [["b", 1], ["c", 1]]),
        ("q(y, count(x)) :- tc(x, y).", ["y", "c1"], [["b", 1], ["c", 3]]),
        ('edge(x, "b"), s = cat(x, "!")', ["x", "s"], [["a", "a!"]]),
        ("edge(x, x); edge(x, _), tc(_, x)", ["x"], [["b"], ["c"]]),
        ('edge("a", x), x != "b"', ["x"], []),
        ('edge("a", "b"), edge("b", "c")', [], [[]]),
        ('edge("a", "b"), edge("b", "a")', [], []),
        ('edge("nowhere", x), edge(x, y)', ["x", "y"], []),
        ("n = 6 * 7", ["n"], [[42]]),
    ],
)
def test_answers(graph: Http, query: str, columns: list[str], rows: list[list[Any]]) -> None:
    answer = ask(graph, query)
    assert [c["name"] for c in answer["columns"]] == columns
    assert sorted(answer["tuples"]) == rows
    assert answer.get("holds") == (None if columns else bool(rows))
    assert (answer["epoch"], answer["cursor"]) == (1, None)


def test_the_epoch_is_the_one_that_is_asked_for(graph: Http) -> None:
    graph.post("/v1/facts", {"relation": "edge", "tuples": [["a", "b"]], "weight": -1})
    query = "tc(x, y), !edge(x, y)"
    assert ask(graph, query)["tuples"] == []
    assert ask(graph, query, as_of=1)["tuples"] == [["a", "c"]]
    assert ask(graph, query, at_least="2-5f2c09b1")["epoch"] == 2
    problem(graph.post("/v1/query", {"query": query, "as_of": 0}), 404, "unknown_relation")


@pytest.mark.parametrize("limit", [1, 2, 7, 100])
@pytest.mark.parametrize("cached", [True, False])
def test_pages_are_distinct_complete_and_of_one_epoch(http: Http, limit: int, cached: bool) -> None:
    if not cached:
        http.app.state.service.evaluator._answers.capacity = 0
    rows = [[i, f"n{i % 3}"] for i in range(12)]
    http.post("/v1/facts", {"relation": "r", "tuples": rows})
    found, cursor = [], None
    while True:
        answer = ask(http, "r(x, s), x > 2, t = cat(s, to_string(9 - x))", limit=limit, cursor=cursor)
        assert answer["epoch"] == 1
        assert len(answer["tuples"]) <= limit
        found += answer["tuples"]
        cursor = answer["cursor"]
        http.post("/v1/facts", {"relation": "r", "tuples": [[len(found) + 50, "new"]]})
        if cursor is None:
            break
    assert found == [[x, s, f"{s}{9 - x}"] for x, s in rows if x > 2]


def test_an_answer_is_evaluated_once_for_all_its_pages(graph: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    real = evaluation.evaluate
    monkeypatch.setattr(evaluation, "evaluate", lambda *a: calls.append(1) or real(*a))
    ask(graph, "n = 1")
    calls.clear()
    cursor = None
    for _ in range(4):
        cursor = ask(graph, CROSS, limit=3, cursor=cursor)["cursor"]
    assert len(calls) == 1
    graph.post("/v1/facts", {"relation": "edge", "tuples": [["x", "y"]]})
    assert len(ask(graph, CROSS)["tuples"]) == 25
    assert len(calls) == 2


def test_a_cursor_belongs_to_its_query(graph: Http) -> None:
    cursor = ask(graph, CROSS, limit=3)["cursor"]
    response = graph.post("/v1/query", {"query": CROSS + ", x != y", "cursor": cursor})
    assert "another query" in problem(response, 400, "invalid_cursor")["detail"]


@pytest.mark.parametrize("position", [[-1], [True], ["a"], [1.5], [], [1, 2]])
def test_forged_cursors(graph: Http, position: list[Any]) -> None:
    from service.cursor import Cursor, encode_cursor, query_digest

    cursor = encode_cursor(Cursor("1-5f2c09b1", position), query_digest("query", CROSS))
    problem(graph.post("/v1/query", {"query": CROSS, "cursor": cursor}), 400, "invalid_cursor")


class TestFormats:
    QUERY = "edge(x, y), x != y, s = cat(x, y), n = strlen(s), b = true, f = 0.5"

    def get(self, http: Http, accept: str) -> Any:
        return http.post("/v1/query", {"query": self.QUERY, "limit": 1}, headers={"accept": accept})

    def test_ndjson(self, graph: Http) -> None:
        response = self.get(graph, "application/x-ndjson")
        assert json.loads(response.text) == {"x": "a", "y": "b", "s": "ab", "n": 2, "b": True, "f": 0.5}
        assert response.headers["zedlog-cursor"]

    def test_csv(self, graph: Http) -> None:
        assert self.get(graph, "text/csv").text == "x,y,s,n,b,f\r\na,b,ab,2,true,0.5\r\n"

    def test_arrow(self, graph: Http) -> None:
        content = self.get(graph, "application/vnd.apache.arrow.stream").content
        table = pa.ipc.open_stream(io.BytesIO(content)).read_all()
        assert [str(t) for t in table.schema.types] == ["string"] * 3 + ["int64", "bool", "double"]
        assert table.num_rows == 1


@pytest.mark.parametrize(
    ("body", "status", "code", "message"),
    [
        ({"query": "tc(x, y), x <"}, 422, "syntax_error", "expected a term"),
        ({"query": "tc(x, y), ct(y, z)"}, 404, "unknown_relation", 'Did you mean "tc"?'),
        ({"query": "tc(x, y), tc(y)"}, 422, "arity_mismatch", "tc has 2 columns"),
        ({"query": "tc(x, y), x > 1"}, 422, "type_mismatch", "x is a symbol"),
        ({"query": "!tc(x, y)"}, 422, "unsafe_rule", "the variable x"),
        ({"query": "edge(x, _), n = 1 / (strlen(x) - 1)"}, 422, "evaluation_error", "divides by zero"),
        (
            {"query": CROSS, "timeout": 0},
            400,
            "invalid_request",
            "timeout must be a number of seconds above 0",
        ),
        ({"query": CROSS, "timeout": "1"}, 400, "invalid_request", "timeout"),
        ({"query": CROSS, "timeout": True}, 400, "invalid_request", "timeout"),
        ({"query": CROSS, "timeout": 61}, 400, "invalid_parameter", "maximum of 60 s"),
        ({"query": "tc(x, y)", "timeout": 61}, 400, "invalid_parameter", "maximum of 60 s"),
        ({"query": CROSS, "tiemout": 1}, 400, "invalid_request", 'Did you mean "timeout"?'),
    ],
)
def test_refusals(graph: Http, body: Any, status: int, code: str, message: str) -> None:
    document = problem(graph.post("/v1/query", body), status, code)
    assert message in document["detail"]
    if status in (404, 422) and code != "evaluation_error":
        assert document["line"] == 1
        assert document["source"] == body["query"]
        assert document["rendered"].splitlines()[-1].strip().strip("^") == ""
        assert document["where"] == "query"


def test_tuples_are_limited(database: FakeClient) -> None:
    http = Http(create_app(Settings(query_tuples=20), database))
    http.post("/v1/transactions", GRAPH)
    http.post("/v1/facts", {"relation": "r", "tuples": [[i] for i in range(15)]})
    assert len(ask(http, "r(x), x > 11")["tuples"]) == 3
    # 15 read and 15 times 4 made.
    document = problem(http.post("/v1/query", {"query": "r(x), tc(y, z)"}), 422, "budget_exceeded")
    assert (document["budget"], "20 tuples allowed" in document["detail"]) == ("tuples", True)
    http.post("/v1/facts", {"relation": "s", "tuples": [[i] for i in range(15)]})
    document = problem(http.post("/v1/query", {"query": "r(x), s(x)"}), 422, "budget_exceeded")
    assert document["relation"] == "s"
    assert len(ask(http, "r(x), s(3), x < 2")["tuples"]) == 2
    http.close()


class Slow:
    """In the place of `evaluate`: works until it is cancelled, or for 20 seconds."""

    def __init__(self) -> None:
        self.began, self.ended = threading.Event(), threading.Event()

    def __call__(self, query: Any, facts: Any, symbols: Any, budget: Budget) -> Any:
        self.began.set()
        assert budget.cancelled is not None
        pause = threading.Event()
        for _ in range(2_000):
            if budget.cancelled():
                self.ended.set()
                raise EvaluationCancelledError("cancelled")
            pause.wait(0.01)
        raise AssertionError("nobody cancelled it")


@pytest.fixture
def slow(graph: Http, monkeypatch: pytest.MonkeyPatch) -> Slow:
    ask(graph, "n = 1")
    slow = Slow()
    monkeypatch.setattr(evaluation, "evaluate", slow)
    return slow


def test_time_is_limited_and_the_thread_is_told(graph: Http, slow: Slow) -> None:
    document = problem(graph.post("/v1/query", {"query": CROSS, "timeout": 0.05}), 422, "budget_exceeded")
    assert (document["budget"], document["timeout"]) == ("seconds", 0.05)
    assert "more than the 0.05 seconds allowed" in document["detail"]
    assert slow.ended.wait(5)


def test_what_cannot_be_done_in_time_is_refused_at_once(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "DERIVATIONS_PER_SECOND", 1_000)
    http.post("/v1/facts", {"relation": "r", "tuples": [[i] for i in range(200)]})
    document = problem(http.post("/v1/query", {"query": "r(x), r(y)", "timeout": 30}), 422, "budget_exceeded")
    assert "would take more than the 30 seconds allowed" in document["detail"]
    assert len(ask(http, "r(x), r(y), x < 2, y < 2", timeout=30)["tuples"]) == 4


def test_a_query_waits_for_a_worker_no_longer_than_its_time(database: FakeClient) -> None:
    http = Http(create_app(Settings(query_workers=1), database))
    http.post("/v1/transactions", GRAPH)
    ask(http, "n = 1")

    async def story() -> None:
        workers = http.app.state.service.evaluator.workers
        await workers.acquire()
        response = await http.client.post("/v1/query", json={"query": CROSS, "timeout": 0.05})
        problem(response, 422, "budget_exceeded")
        waiting = asyncio.create_task(http.client.post("/v1/query", json={"query": CROSS}))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        # One atom needs no worker.
        assert (await http.client.post("/v1/query", json={"query": "tc(x, y)"})).status_code == 200
        workers.release()
        assert (await waiting).status_code == 200
        assert workers._value == 1

    http.runner.run(story())
    http.close()


def test_a_failed_query_gives_its_worker_back(graph: Http) -> None:
    for _ in range(5):
        query = {"query": "edge(x, _), n = 1 / (strlen(x) - 1)"}
        problem(graph.post("/v1/query", query), 422, "evaluation_error")
    assert len(ask(graph, CROSS)["tuples"]) == 16


def test_a_client_that_goes_cancels_its_query(graph: Http, slow: Slow) -> None:
    """Straight over ASGI: the body comes whole, then the client goes."""
    sent: list[Any] = []

    async def story() -> None:
        body = json.dumps({"query": CROSS, "timeout": 30}).encode()
        gone = asyncio.Event()
        messages = iter([{"type": "http.request", "body": body}])

        async def receive() -> Any:
            message = next(messages, None)
            if message is None:
                await gone.wait()
                return {"type": "http.disconnect"}
            return message

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/query",
            "raw_path": b"/v1/query",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json")],
            "http_version": "1.1",
            "scheme": "http",
            "server": ("zedlog", 80),
            "client": ("client", 1),
            "root_path": "",
        }
        call = asyncio.create_task(graph.app(scope, receive, send))
        await asyncio.to_thread(slow.began.wait, 5)
        assert not call.done()
        gone.set()
        await asyncio.wait_for(call, 5)

    graph.runner.run(story())
    assert slow.ended.wait(5)
    assert sent[0]["status"] == 499


def test_the_kernels_are_loaded_at_the_start(database: FakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    loads = []
    monkeypatch.setattr(evaluation, "_load", lambda: loads.append(1))
    app = create_app(Settings(), database)

    async def story() -> None:
        async with app.router.lifespan_context(app):
            await asyncio.sleep(0.05)
            assert loads == [1]

    asyncio.run(story())
    assert loads == [1]
    assert database.closed


def test_time_of_a_single_atom_is_limited_too(database: FakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    http = Http(create_app(Settings(), database))
    http.post("/v1/transactions", GRAPH)

    async def never(*_: Any, **__: Any) -> Any:
        await asyncio.sleep(20)

    monkeypatch.setattr("tests.service.fake.FakeSnapshot.facts", never)
    response = http.post("/v1/query", {"query": "tc(x, y)", "timeout": 0.05})
    assert problem(response, 422, "budget_exceeded")["budget"] == "seconds"
    http.close()


def test_settings_agree() -> None:
    with pytest.raises(ValueError, match="query_timeout"):
        Settings(query_timeout=20, max_query_timeout=10)


def test_a_deadline_says_what_it_was() -> None:
    deadline = evaluation.Deadline(2.5)
    deadline.begin()
    assert 2.0 < deadline.left() <= 2.5
    assert isinstance(deadline.passed(), BudgetExceededError)
    assert "2.5 seconds" in deadline.passed().message
