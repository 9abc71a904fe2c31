"""Transactions, facts and rules through HTTP: what is answered, and that the database did it."""

from __future__ import annotations

import pytest

from service.changes import program_transaction
from service.models import Pending, Rules, TransactionResult, TransactionStatus
from tests.service.conftest import GRAPH, Http, problem
from tests.service.fake import FakeClient

EDGE = {"relation": "edge", "tuples": [["a", "b"]]}
BASE = "tc(x, y) :- edge(x, y)."


def test_a_transaction_answers_its_epoch_and_changes(http: Http) -> None:
    response = http.post("/v1/transactions", GRAPH)
    assert response.status_code == 200
    body = response.json()
    assert body["epoch"] == 1
    assert body["token"] == "1-5f2c09b1"
    assert body["changes"] == {"edge": {"inserted": 3, "deleted": 0}, "tc": {"inserted": 4, "deleted": 0}}
    assert body["elapsed_ms"]["total"] > 0
    assert "delta" not in body
    TransactionResult.model_validate(body)


def test_return_delta_adds_the_changed_tuples(graph: Http) -> None:
    body = graph.post("/v1/transactions?return=delta", {"facts": [{**EDGE, "weight": -1}]}).json()
    assert body["delta"] == {
        "edge": {"inserted": [], "deleted": [["a", "b"]]},
        "tc": {"inserted": [], "deleted": [["a", "b"], ["a", "c"]]},
    }
    TransactionResult.model_validate(body)


def test_a_dry_run_reports_and_changes_nothing(graph: Http, database: FakeClient) -> None:
    body = graph.post("/v1/transactions?dry_run=true", {"facts": [{**EDGE, "weight": -1}]}).json()
    assert body["changes"]["tc"] == {"inserted": 0, "deleted": 2}
    assert database.epoch == 1
    status = graph.get(f"/v1/transactions/{body['transaction']}").json()
    assert status["status"] == "dry_run"


@pytest.mark.parametrize("path", ["/v1/transactions", "/v1/facts"])
def test_a_transaction_may_say_how_and_where_it_is_evaluated(
    graph: Http, database: FakeClient, path: str
) -> None:
    body = {"facts": [EDGE]} if path == "/v1/transactions" else EDGE
    assert graph.post(f"{path}?strategy=bootstrap&placement=spark", body).status_code == 200
    assert database.log[-1][1].evaluation == ("bootstrap", "spark")
    assert graph.post(f"{path}?strategy=dred", body).status_code == 200
    assert database.log[-1][1].evaluation == ("dred", None)
    assert graph.post(path, body).status_code == 200
    assert database.log[-1][1].evaluation == (None, None)
    for wrong in ("strategy=quick", "placement=cloud"):
        refused = problem(graph.post(f"{path}?{wrong}", body), 400, "invalid_parameter")
        assert "spark" in refused["detail"] or "bootstrap" in refused["detail"]


def test_set_mode_makes_adding_what_is_there_a_no_op(graph: Http, database: FakeClient) -> None:
    for url, body in (
        ("/v1/transactions", {"facts": [EDGE], "mode": "set"}),
        ("/v1/facts?mode=set", EDGE),
    ):
        assert graph.post(url, body).json()["changes"] == {}
        assert database.states[-1].facts["edge"]["a", "b"] == 1
    assert graph.post("/v1/facts", EDGE).status_code == 200
    assert database.states[-1].facts["edge"]["a", "b"] == 2


def test_declarations_are_text_or_a_list_of_texts(http: Http) -> None:
    one = ".decl edge(from: symbol, to: symbol)"
    assert http.post("/v1/transactions", {"declarations": one}).status_code == 200
    assert http.post("/v1/transactions", {"declarations": [one, ".decl n(x: number)"]}).status_code == 200
    columns = http.get("/v1/relations/edge").json()["columns"]
    assert columns == [{"name": "from", "type": "symbol"}, {"name": "to", "type": "symbol"}]


def test_without_waiting_the_answer_is_202_and_a_place_to_look(http: Http, database: FakeClient) -> None:
    database.engine_runs = False
    response = http.post("/v1/transactions?wait=false", GRAPH)
    assert response.status_code == 202
    pending = Pending.model_validate(response.json())
    assert response.headers["location"] == pending.status_url == f"/v1/transactions/{pending.transaction}"
    assert TransactionStatus.model_validate(http.get(pending.status_url).json()).status == "pending"
    database.engine_runs = True
    database.run()
    status = TransactionStatus.model_validate(http.get(pending.status_url).json())
    assert status.status == "committed"
    assert status.result is not None
    assert status.result.epoch == 1


def test_a_wait_that_is_too_long_answers_202_and_loses_nothing(http: Http, database: FakeClient) -> None:
    database.engine_runs = False
    response = http.post("/v1/facts", EDGE)
    assert response.status_code == 202
    database.engine_runs = True
    database.run()
    assert http.get(response.headers["location"]).json()["status"] == "committed"


def test_a_refused_transaction_keeps_its_problem(graph: Http) -> None:
    refused = graph.post("/v1/facts", {**EDGE, "weight": -2})
    document = problem(refused, 409, "negative_weight")
    status = graph.get(document["instance"]).json()
    assert status["status"] == "refused"
    assert status["problem"]["code"] == "negative_weight"
    TransactionStatus.model_validate(status)


@pytest.mark.parametrize("bad", ["nothing", "1735689600000-7", "-", "1-0%20"])
def test_an_unknown_transaction_is_a_404(graph: Http, bad: str) -> None:
    problem(graph.get(f"/v1/transactions/{bad}"), 404, "unknown_transaction")


def test_a_dry_run_leaves_its_idempotency_key_free(http: Http, database: FakeClient) -> None:
    key = {"Idempotency-Key": "try-then-do"}
    for _ in range(2):
        tried = http.post("/v1/facts?dry_run=true", EDGE, headers=key)
        assert (tried.status_code, database.epoch) == (200, 0)
        assert "idempotency-replayed" not in tried.headers
    done = http.post("/v1/facts", EDGE, headers=key)
    assert (done.status_code, database.epoch, "idempotency-replayed" in done.headers) == (200, 1, False)
    assert http.post("/v1/facts", EDGE, headers=key).headers["idempotency-replayed"] == "true"
    # Trying it again looks at the state that is there now, and is no conflict either.
    assert http.post("/v1/facts?dry_run=true", EDGE, headers=key).json()["epoch"] == 2
    assert database.epoch == 1


def test_an_unknown_rule_names_its_neighbours(graph: Http) -> None:
    rule = graph.get("/v1/rules").json()["rules"][0]["id"]
    for document in (
        problem(graph.get(f"/v1/rules/{rule[:-2]}zz"), 404, "unknown_rule"),
        problem(graph.delete(f"/v1/rules/{rule[:-2]}zz"), 404, "unknown_rule"),
    ):
        assert document["near"] == [rule]
        assert f'Did you mean "{rule}"?' in document["detail"]


def test_a_waiting_transaction_is_cancelled(http: Http, database: FakeClient) -> None:
    database.engine_runs = False
    waiting = http.post("/v1/facts?wait=false", EDGE).json()["transaction"]
    response = http.delete(f"/v1/transactions/{waiting}")
    assert response.status_code == 202
    assert response.json()["status"] == "refused"
    assert response.json()["problem"]["code"] == "cancelled"
    assert response.json()["problem"]["status"] == 409
    TransactionStatus.model_validate(response.json())
    # Once more asks for the same.
    assert http.delete(f"/v1/transactions/{waiting}").json() == response.json()


def test_a_cancellation_that_no_engine_has_heard_of_is_pending(
    http: Http, database: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.routes.transactions._CANCEL_SECONDS", 0.01)
    database.engine_runs = database.engine_hears = False
    waiting = http.post("/v1/facts?wait=false", EDGE).json()["transaction"]
    response = http.delete(f"/v1/transactions/{waiting}")
    assert (response.status_code, response.json()["status"]) == (202, "pending")


def test_what_has_its_outcome_cannot_be_cancelled(graph: Http) -> None:
    done = graph.post("/v1/facts", EDGE).json()["transaction"]
    document = problem(graph.delete(f"/v1/transactions/{done}"), 409, "transaction_not_cancellable")
    assert document["outcome"] == "committed"
    assert "send the opposite transaction" in document["detail"]
    problem(graph.delete("/v1/transactions/1-1"), 404, "unknown_transaction")


def test_an_idempotency_key_applies_once(http: Http, database: FakeClient) -> None:
    key = {"Idempotency-Key": "load-7"}
    first = http.post("/v1/facts", EDGE, headers=key)
    again = http.post("/v1/facts", EDGE, headers=key)
    assert again.status_code == 200
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    assert {**again.json(), "elapsed_ms": None} == {**first.json(), "elapsed_ms": None}
    assert database.states[-1].facts["edge"] == {("a", "b"): 1}
    other = http.post("/v1/facts", {**EDGE, "weight": 2}, headers=key)
    problem(other, 422, "idempotency_conflict")
    assert database.epoch == 1


def test_a_key_whose_outcome_is_no_longer_kept(http: Http, database: FakeClient) -> None:
    key = {"Idempotency-Key": "old"}
    assert http.post("/v1/facts", EDGE, headers=key).status_code == 200
    database.forget()
    document = problem(http.post("/v1/facts", EDGE, headers=key), 404, "unknown_transaction")
    assert "processed before" in document["detail"]
    assert database.epoch == 1


def test_facts_one_or_many_added_and_retracted(http: Http, database: FakeClient) -> None:
    assert http.post("/v1/facts", EDGE).json()["changes"] == {"edge": {"inserted": 1, "deleted": 0}}
    many = [
        {"relation": "edge", "tuples": [["b", "c"]], "weight": 3},
        {"relation": "n", "tuples": [[1], [2]]},
    ]
    assert http.post("/v1/facts", many).status_code == 200
    assert database.states[-1].facts == {
        "edge": {("a", "b"): 1, ("b", "c"): 3},
        "n": {(1,): 1, (2,): 1},
    }
    assert http.post("/v1/facts", {**EDGE, "weight": -1}).json()["changes"]["edge"]["deleted"] == 1


def test_ten_thousand_tuples_in_one_body(database: FakeClient, http: Http) -> None:
    http.app.state.service.settings.max_body_bytes = 2**20
    rows = [[i, f"n{i}", i / 4, i % 2 == 0] for i in range(10_000)]
    assert (
        http.post("/v1/facts", {"relation": "r", "tuples": rows}).json()["changes"]["r"]["inserted"] == 10_000
    )
    assert database.states[-1].facts["r"] == {tuple(row): 1 for row in rows}


def test_integers_keep_all_their_digits(http: Http, database: FakeClient) -> None:
    least, most = -(2**63), 2**63 - 1
    assert http.post("/v1/facts", {"relation": "n", "tuples": [[least], [most]]}).status_code == 200
    assert set(database.states[-1].facts["n"]) == {(least,), (most,)}
    assert http.get(f"/v1/relations/n/facts?c0={most}").json()["tuples"] == [[most]]


class TestRules:
    def test_one_rule_by_text_listed_and_removed_by_id(self, http: Http, database: FakeClient) -> None:
        assert http.post("/v1/rules", {"rule": BASE}).status_code == 200
        listing = http.get("/v1/rules").json()
        (rule,) = Rules.model_validate(listing).rules
        assert rule.rule == BASE
        assert rule.weight == 1
        assert http.get(f"/v1/rules/{rule.id}").json()["canonical"] == rule.canonical
        assert http.delete(f"/v1/rules/{rule.id}").status_code == 200
        assert http.get("/v1/rules").json()["rules"] == []
        problem(http.delete(f"/v1/rules/{rule.id}"), 404, "unknown_rule")
        problem(http.get(f"/v1/rules/{rule.id}"), 404, "unknown_rule")
        assert database.epoch == 2

    def test_an_alpha_variant_removes_it(self, graph: Http) -> None:
        removed = graph.post("/v1/rules", {"rule": "tc(p,q):-edge(p,q).", "weight": -1})
        assert removed.json()["changes"] == {"tc": {"inserted": 0, "deleted": 4}}

    def test_deleting_takes_one_from_the_weight(self, http: Http) -> None:
        http.post("/v1/rules", [{"rule": BASE}, {"rule": "tc(a, b) :- edge(a, b)."}])
        (rule,) = http.get("/v1/rules").json()["rules"]
        assert rule["weight"] == 2
        http.delete(f"/v1/rules/{rule['id']}")
        assert http.get(f"/v1/rules/{rule['id']}").json()["weight"] == 1

    def test_a_rule_that_goes_before_its_deletion_is_a_409(self, graph: Http, database: FakeClient) -> None:
        (rule, _) = graph.get("/v1/rules").json()["rules"]
        # The log has another deletion that no snapshot shows yet.
        database.engine_runs = False
        first = graph.delete(f"/v1/rules/{rule['id']}?wait=false")
        second = graph.delete(f"/v1/rules/{rule['id']}?wait=false")
        database.engine_runs = True
        database.run()
        assert graph.get(first.headers["location"]).json()["status"] == "committed"
        refused = graph.get(second.headers["location"]).json()
        assert (refused["problem"]["code"], refused["problem"]["status"]) == ("negative_weight", 409)

    def test_removing_a_rule_that_is_not_there_is_a_409(self, graph: Http, database: FakeClient) -> None:
        problem(
            graph.post("/v1/rules", {"rule": "p(x) :- edge(x, _).", "weight": -1}), 409, "negative_weight"
        )
        assert database.epoch == 1

    def test_a_program_holds_declarations_facts_and_rules(self, http: Http, database: FakeClient) -> None:
        program = """
            .type Node <: symbol
            .decl edge(from: Node, to: Node)  // the graph
            .decl tc(x: Node, y: Node)
            .output tc
            edge("a", "b"). edge("b", "c").
            tc(x, y) :-
                edge(x, y) ; tc(x, z), /* grow */ edge(z, y).
            size(-1, 1.5, true).
        """
        assert http.post("/v1/rules", {"program": program}).status_code == 200
        state = database.states[-1]
        assert state.derived["tc"] == {("a", "b"), ("b", "c"), ("a", "c")}
        assert state.facts["size"] == {(-1, 1.5, True): 1}
        assert [c.name for c in state.schemas["edge"].columns] == ["from", "to"]
        assert sorted(r.weight for r in state.rules.values()) == [1, 1]
        # The same text with weight -1 takes all of it away again.
        assert http.post("/v1/rules", {"program": program, "weight": -1}).status_code == 200
        assert not any(database.states[-1].facts.values())
        assert database.states[-1].rules == {}
        assert database.states[-1].declarations == ""

    def test_a_program_keeps_what_its_declarations_say(self, http: Http, database: FakeClient) -> None:
        program = ".type Name <: symbol .decl homeless(x: Name) constraint"
        assert http.post("/v1/rules", {"program": program}).status_code == 200
        assert database.states[-1].declarations == ".decl homeless(x: symbol) constraint"
        assert http.post("/v1/transactions", {"undeclare": ["homeless"]}).status_code == 200
        assert database.states[-1].declarations == ""
        problem(http.post("/v1/transactions", {"undeclare": ["homeless"]}), 409, "not_declared")
        for wrong in ("homeless", [1], [""]):
            problem(http.post("/v1/transactions", {"undeclare": wrong}), 400, "invalid_request")

    def test_a_program_as_plain_text(self, http: Http, database: FakeClient) -> None:
        text = 'edge("ä", "b").\n' + BASE
        plain = {"content-type": "text/plain; charset=utf-8"}
        response = http.request("POST", "/v1/rules", content=text.encode(), headers=plain)
        assert response.status_code == 200
        assert database.states[-1].derived["tc"] == {("ä", "b")}

    def test_a_program_cannot_read_files(self, http: Http, database: FakeClient) -> None:
        program = f".decl edge(x: symbol, y: symbol)\n.input edge\n{BASE}"
        document = problem(http.post("/v1/rules", {"program": program}), 422, "unsupported_feature")
        assert document["line"] == 2
        assert "/v1/facts" in document["detail"]
        assert database.log == []


def test_a_program_keeps_what_its_declarations_mean() -> None:
    program = """
        .decl bad(x: symbol) constraint brie
        .decl n(x: symbol, c: number) fixpoint(max_height=7)
        .decl e(x: symbol) output
        tc(x, y) :- edge(x, y).
    """
    sent = program_transaction(program, 1, mode="zset", dry_run=False, return_delta=False)
    assert sent.declarations.splitlines() == [
        ".decl bad(x: symbol) constraint",
        ".decl n(x: symbol, c: number) fixpoint(tolerance=0.0, max_height=7)",
        ".decl e(x: symbol)",
    ]


def test_program_text_in_a_transaction(http: Http) -> None:
    body = {
        "program": '.decl edge(x: symbol, y: symbol)\nedge("a", "b").\ntc(x, y) :- edge(x, y).',
        "facts": [{"relation": "edge", "tuples": [["b", "c"]]}],
        "rules": [{"rule": "tc(x, z) :- tc(x, y), edge(y, z)."}],
        "declarations": ".decl other(n: number)",
    }
    answer = http.post("/v1/transactions?return=delta", body).json()
    assert {name: sorted(delta["inserted"]) for name, delta in answer["delta"].items()} == {
        "edge": [["a", "b"], ["b", "c"]],
        "tc": [["a", "b"], ["a", "c"], ["b", "c"]],
    }
    declared = http.get("/v1/rules").json()["declarations"]
    assert ".decl edge(x: symbol, y: symbol)" in declared
    assert ".decl other(n: number)" in declared
    refused = problem(http.post("/v1/transactions", {"program": "p(x) :- q(y)."}), 422, "unsafe_rule")
    assert refused["where"] == "program"
