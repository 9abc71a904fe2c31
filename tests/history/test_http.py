"""History and sources over HTTP, with the real log, engine and snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from service.history_models import Blame, FactHistory, SourceAt, Sources, TransactionList
from service.models import TransactionResult
from tests.live import LiveSystem

RULES = "exposed(x, y) :- manages(x, y).\nexposed(x, z) :- exposed(x, y), manages(y, z).\n"


@pytest.fixture(scope="module")
def http(own_live: LiveSystem) -> Iterator[httpx.Client]:
    with own_live.client() as client:
        yield client


def ok(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def refused(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert (response.status_code, response.json()["code"]) == (status, code), response.text
    found: dict[str, Any] = response.json()
    return found


def manages(http: httpx.Client) -> set[tuple[str, ...]]:
    return {tuple(row) for row in ok(http.get("/v1/relations/manages/facts"))["tuples"]}


def test_a_source_from_its_first_file_to_its_end(http: httpx.Client) -> None:
    ok(
        http.post(
            "/v1/rules",
            content=RULES,
            headers={"content-type": "text/plain"},
            params={"message": "the rules"},
        )
    )
    csv = "x,y\nann,bob\nbob,cid\n"
    put = {"relation": "manages", "header": "true", "message": "monday"}
    file = {"content-type": "text/csv"}
    dry = ok(
        http.put(
            "/v1/sources/hr", content=csv, headers=file, params={**put, "dry_run": "true", "return": "delta"}
        )
    )
    assert sorted(dry["delta"]["exposed"]["inserted"]) == [["ann", "bob"], ["ann", "cid"], ["bob", "cid"]]
    refused(http.get("/v1/sources/hr"), 404, "unknown_source")
    first = TransactionResult.model_validate(
        ok(http.put("/v1/sources/hr", content=csv, headers=file, params=put))
    )
    assert first.changes["exposed"].inserted == 3
    # The same again changes nothing.
    assert ok(http.put("/v1/sources/hr", content=csv, headers=file, params=put))["changes"] == {}
    tsv = "ann\tbob\nbob\tdan\n"
    params = {"relation": "manages", "return": "delta", "message": "tuesday"}
    second = ok(
        http.put(
            "/v1/sources/hr",
            content=tsv,
            headers={"content-type": "text/tab-separated-values"},
            params=params,
        )
    )
    assert second["delta"]["manages"] == {"inserted": [["bob", "dan"]], "deleted": [["bob", "cid"]]}
    # Another source, with a relation in common, and one of its own.
    body = {"facts": {"manages": [["ann", "bob"]], "person": [["ann"]]}, "message": "from the crm"}
    ok(http.put("/v1/sources/crm", json=body))
    listed = Sources.model_validate(ok(http.get("/v1/sources")))
    # Other tests of the same system have sources, too.
    own = {s.source: s for s in listed.sources if s.source in ("crm", "hr")}
    assert [(s.source, s.facts, [r.relation for r in s.relations]) for s in own.values()] == [
        ("crm", 2, ["manages", "person"]),
        ("hr", 2, ["manages"]),
    ]
    last = own["hr"].last_transaction
    assert last is not None
    assert (last.message, last.replaces) == ("tuesday", "relations")
    refused(http.post("/v1/facts", json=fact(["ann", "bob"], -2)), 409, "asserted_by_source")
    # What the crm asserts stays.
    gone = ok(http.delete("/v1/sources/hr", params={"return": "delta"}))
    assert gone["delta"]["manages"] == {"inserted": [], "deleted": [["bob", "dan"]]}
    assert manages(http) == {("ann", "bob")}
    refused(http.delete("/v1/sources/hr"), 404, "unknown_source")
    assert (
        SourceAt.model_validate(ok(http.get("/v1/sources/hr", params={"as_of": second["epoch"]}))).facts == 2
    )
    names = [r["relation"] for r in ok(http.get("/v1/relations"))["relations"]]
    assert {"exposed", "manages", "person"} <= set(names)
    assert not any("(from" in name for name in names)
    refused(http.get("/v1/relations/manages (from crm)"), 404, "unknown_relation")
    refused(http.get("/v1/relations/manages (from crm)/facts"), 404, "unknown_relation")


def fact(row: list[Any], weight: int = 1, relation: str = "manages") -> dict[str, Any]:
    return {"relation": relation, "tuples": [row], "weight": weight}


def test_a_put_that_is_sent_again_is_applied_once(http: httpx.Client) -> None:
    key = {"Idempotency-Key": "put-once"}
    first = http.put("/v1/sources/again", json={"facts": {"once": [[1]]}}, headers=key)
    ok(http.put("/v1/sources/again", json={"facts": {"once": [[2]]}}))
    again = http.put("/v1/sources/again", json={"facts": {"once": [[1]]}}, headers=key)
    assert again.headers["Idempotency-Replayed"] == "true"
    assert ok(again)["epoch"] == ok(first)["epoch"]
    assert ok(http.get("/v1/relations/once/facts"))["tuples"] == [[2]]
    for _ in range(2):
        answer = http.delete("/v1/sources/again", headers={"Idempotency-Key": "gone-once"})
        assert ok(answer)["changes"] == {"once": {"inserted": 0, "deleted": 1}}


def test_lines_of_json(http: httpx.Client) -> None:
    lines = '{"b": 2, "a": 1}\n\n{"a": 3, "b": 9223372036854775807}\n'
    kind = {"content-type": "application/x-ndjson"}
    ok(http.put("/v1/sources/lines", content=lines, headers=kind, params={"relation": "pair"}))
    assert sorted(ok(http.get("/v1/relations/pair/facts"))["tuples"]) == [[2, 1], [2**63 - 1, 3]]
    ok(http.put("/v1/sources/lines", content="[5, 6]\n", headers=kind, params={"relation": "pair"}))
    assert ok(http.get("/v1/relations/pair/facts"))["tuples"] == [[5, 6]]
    ok(http.put("/v1/sources/lines", content="", headers=kind, params={"relation": "pair"}))
    refused(http.get("/v1/sources/lines"), 404, "unknown_source")


def test_transactions_are_listed_and_filtered(http: httpx.Client) -> None:
    start = ok(http.post("/v1/facts", json=fact(["t1"], relation="thing"), params={"message": "one"}))
    two = ok(
        http.post(
            "/v1/transactions",
            json={"facts": [fact(["t2"], relation="thing")], "message": "two", "source": "s"},
        )
    )
    refused(
        http.post("/v1/facts", json=fact(["t3"], -1, "thing"), params={"message": "three"}),
        409,
        "negative_weight",
    )
    ok(http.post("/v1/rules", json={"rule": "all(x) :- thing(x)."}, params={"message": "four"}))

    def told(**params: Any) -> list[str | None]:
        answer = TransactionList.model_validate(ok(http.get("/v1/transactions", params=params)))
        return [entry.message for entry in answer.transactions]

    assert told(limit=4) == ["four", "three", "two", "one"]
    assert told(relation="thing") == ["three", "two", "one"]
    assert told(relation="all") == ["four"]
    assert told(source="s") == ["two"]
    assert told(status="refused", relation="thing") == ["three"]
    assert told(from_epoch=start["epoch"], to_epoch=two["epoch"]) == ["two", "one"]
    assert told(author="nobody") == []
    assert told(since="2100-01-01T00:00:00Z") == told(until="2000-01-01") == []
    assert told(since="2000-01-01", limit=1) == ["four"]
    pages, before = [], None
    while True:
        page = ok(http.get("/v1/transactions", params={"limit": 3} | ({"before": before} if before else {})))
        pages += [entry["transaction"] for entry in page["transactions"]]
        before = page["before"]
        if before is None:
            break
    assert pages == [
        e["transaction"] for e in ok(http.get("/v1/transactions", params={"limit": 1000}))["transactions"]
    ]
    assert len(set(pages)) == len(pages)
    whole = TransactionList.model_validate(ok(http.get("/v1/transactions", params={"limit": 4}))).transactions
    assert whole[1].problem is not None
    assert whole[1].problem.code == "negative_weight"
    assert (whole[2].facts, whole[2].source, whole[2].epoch) == ({"thing": 1}, "s", two["epoch"])
    assert whole[2].transaction == two["transaction"]
    for wrong in ({"since": "yesterday"}, {"before": "x"}, {"limit": 0}, {"what": 1}):
        refused(http.get("/v1/transactions", params=wrong), 400, "invalid_parameter")


def test_when_a_tuple_came_and_went_and_who_did_it(http: httpx.Client) -> None:
    ok(http.post("/v1/rules", json={"rule": "seen(x) :- visit(x, y)."}))
    came = ok(http.post("/v1/facts", json=fact(["a", 1], relation="visit"), params={"message": "came"}))
    ok(http.post("/v1/facts", json=fact(["b", 1], relation="visit"), params={"message": "another"}))
    more = ok(
        http.post(
            "/v1/facts", json=fact(["a", 1], relation="visit"), params={"source": "log", "message": "more"}
        )
    )
    went = ok(http.post("/v1/facts", json=fact(["a", 1], -1, "visit"), params={"message": "less"}))
    gone = ok(http.delete("/v1/sources/log", params={"message": "went"}))
    back = ok(http.post("/v1/facts", json=fact(["a", 2], relation="visit"), params={"message": "back"}))

    def events(relation: str, **params: Any) -> list[tuple[Any, ...]]:
        found, cursor = [], None
        while True:
            page = FactHistory.model_validate(
                ok(
                    http.get(
                        f"/v1/relations/{relation}/facts/history",
                        params=params | ({"cursor": cursor} if cursor else {}),
                    )
                )
            )
            for e in page.events:
                assert e.transactions is not None
                found.append((e.epoch, e.change, e.weight, e.derived, [t.message for t in e.transactions]))
            cursor = page.cursor
            if cursor is None:
                return found

    expected = [
        (gone["epoch"], "went", 0, False, ["went"]),
        (went["epoch"], "changed", 1, False, ["less"]),
        (more["epoch"], "changed", 2, False, ["more"]),
        (came["epoch"], "appeared", 1, False, ["came"]),
    ]
    columns = [c["name"] for c in ok(http.get("/v1/relations/visit"))["columns"]]
    assert events("visit", **{columns[0]: "a", columns[1]: 1}) == expected
    assert events("visit", **{columns[0]: "a", columns[1]: 1}, limit=1) == expected
    assert events("visit", **{columns[0]: "nowhere"}) == []
    assert events("seen", x="a") == [
        (back["epoch"], "appeared", 0, True, ["back"]),
        (gone["epoch"], "went", 0, False, ["went"]),
        (came["epoch"], "appeared", 0, True, ["came"]),
    ]
    blame = Blame.model_validate(ok(http.get("/v1/relations/seen/facts/blame", params={"x": "a"})))
    (only,) = blame.facts
    assert (only.tuple, only.since, only.exact, only.derived) == (["a"], back["epoch"], True, True)
    assert only.transactions is not None
    assert [t.message for t in only.transactions] == ["back"]
    assert ok(http.get("/v1/relations/seen/facts/blame", params={"x": "nobody"}))["facts"] == []
    ok(http.put("/v1/sources/log", json={"facts": {"visit": [["b", 1]]}}))
    both = Blame.model_validate(ok(http.get("/v1/relations/visit/facts/blame", params={columns[0]: "b"})))
    assert [(f.weight, f.sources) for f in both.facts] == [(2, {"log": 1})]
    refused(http.get("/v1/relations/nothing/facts/history"), 404, "unknown_relation")
    refused(http.get("/v1/relations/seen/facts/history", params={"z": 1}), 400, "unknown_column")
    refused(http.get("/v1/relations/seen/facts/history", params={"cursor": "x"}), 400, "invalid_cursor")


def test_a_rollback_and_a_restart_of_everything(own_live: LiveSystem, http: httpx.Client) -> None:
    ok(http.put("/v1/sources/roll", json={"facts": {"ball": [[1], [2]]}}))
    ok(http.post("/v1/rules", json={"rule": "big(x) :- ball(x), x > 1."}))
    start = ok(http.get("/v1/relations"))
    ok(http.put("/v1/sources/roll", json={"facts": {"ball": [[7], [8], [9]]}}))
    ok(
        http.post(
            "/v1/transactions",
            json={"facts": [fact([50], relation="ball")], "declarations": ".decl extra(x: number)"},
        )
    )
    then = ok(http.get("/v1/relations"))
    target = start["epoch"]
    dry = ok(http.post("/v1/rollback?dry_run=true&return=delta", json={"to": target}))
    assert sorted(dry["delta"]["big"]["deleted"]) == [[7], [8], [9], [50]]
    assert ok(http.get("/v1/relations"))["relations"] == then["relations"]
    # It is in the log while no engine runs, and is done after the next start; so is what comes after it.
    own_live.kill("engine")
    key = {"Idempotency-Key": "back"}
    pending = http.post("/v1/rollback?wait=false", json={"to": target, "message": "oops"}, headers=key)
    assert pending.status_code == 202
    own_live.start("engine")
    own_live.wait_ready()
    answer = http.post("/v1/rollback", json={"to": target, "message": "oops"}, headers=key)
    back = ok(answer)
    assert back["epoch"] == then["epoch"] + 1
    assert ok(http.get("/v1/relations"))["relations"] == start["relations"]
    assert ok(http.get("/v1/sources/roll"))["facts"] == 2
    entry = TransactionList.model_validate(
        ok(http.get("/v1/transactions", params={"limit": 1}))
    ).transactions[0]
    assert (entry.rollback, entry.message, entry.epoch) == (target, "oops", back["epoch"])
    undone = ok(http.post("/v1/rollback", json={"to": then["epoch"]}))
    assert ok(http.get("/v1/relations"))["relations"] == then["relations"]
    assert undone["epoch"] == back["epoch"] + 1
    ok(http.put("/v1/sources/roll", json={"facts": {}}))
    assert ok(http.get("/v1/relations/ball/facts"))["tuples"] == [[50]]
    problem = refused(http.post("/v1/rollback", json={"to": 10_000}), 404, "epoch_not_retained")
    assert problem["newest"] == undone["epoch"] + 1


@pytest.mark.parametrize(
    ("method", "path", "sent", "status", "code"),
    [
        ("PUT", "/v1/sources/a b ", {"json": {"facts": {}}}, 400, "invalid_request"),
        ("PUT", "/v1/sources/a(b", {"json": {"facts": {}}}, 400, "invalid_request"),
        ("PUT", "/v1/sources/hr", {"json": {"facts": []}}, 400, "invalid_request"),
        ("PUT", "/v1/sources/hr", {"json": {"facts": {"r": [1]}}}, 400, "invalid_request"),
        ("PUT", "/v1/sources/hr", {"json": {"facts": {"r": [[None]]}}}, 400, "invalid_value"),
        ("PUT", "/v1/sources/hr", {"json": {"fact": {}}}, 400, "invalid_request"),
        ("PUT", "/v1/sources/hr", {"json": {"facts": {"not a name": [[1]]}}}, 400, "invalid_request"),
        ("PUT", "/v1/sources/hr?relation=a", {"json": {"facts": {"b": [[1]]}}}, 400, "invalid_request"),
        ("PUT", "/v1/sources/hr?header=true", {"json": {"facts": {}}}, 400, "invalid_parameter"),
        (
            "PUT",
            "/v1/sources/hr",
            {"content": "a,b", "headers": {"content-type": "text/csv"}},
            400,
            "invalid_parameter",
        ),
        (
            "PUT",
            "/v1/sources/hr?relation=r",
            {"content": "a,b\nc\n", "headers": {"content-type": "text/csv"}},
            422,
            "bad_rows",
        ),
        (
            "PUT",
            "/v1/sources/hr?relation=r",
            {"content": "[1]\n{", "headers": {"content-type": "application/x-ndjson"}},
            422,
            "bad_rows",
        ),
        ("PUT", "/v1/sources/hr", {"content": "x", "headers": {"content-type": "image/png"}}, 415, None),
        ("POST", "/v1/rollback", {"json": {}}, 400, "invalid_request"),
        ("POST", "/v1/rollback", {"json": {"to": "7"}}, 400, "invalid_request"),
        ("POST", "/v1/rollback", {"json": {"to": -1}}, 400, "invalid_request"),
        ("POST", "/v1/rollback?message=a", {"json": {"to": 0, "message": "b"}}, 400, "invalid_parameter"),
        ("POST", "/v1/facts?source=", {"json": []}, 400, "invalid_parameter"),
        ("POST", "/v1/rules?source=hr", {"json": {"rule": "a(x) :- b(x)."}}, 400, "invalid_request"),
        ("POST", "/v1/transactions", {"json": {"author": "me"}}, 400, "invalid_request"),
        ("POST", "/v1/transactions", {"json": {"replaces": "source", "facts": []}}, 400, "invalid_request"),
        ("POST", "/v1/transactions", {"json": {"source": "hr", "replaces": "all"}}, 400, "invalid_request"),
    ],
)
def test_bad_requests(
    http: httpx.Client, method: str, path: str, sent: dict[str, Any], status: int, code: str | None
) -> None:
    refused(http.request(method, path, **sent), status, code or "unsupported_media_type")
