"""The service over the real log, engine and snapshot, through sockets: what the database in memory cannot
show."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from service.models import FactsPage, QueryPage, Relations, Rules, TransactionResult
from tests.live import LiveSystem
from tests.service.conftest import problem
from tests.waiting import until

CHAIN = [[i, i + 1] for i in range(60)]
REACH = {
    "facts": [{"relation": "arc", "tuples": CHAIN}],
    "rules": [{"rule": "reach(x, y) :- arc(x, y)."}, {"rule": "reach(x, z) :- reach(x, y), arc(y, z)."}],
    "declarations": ".decl arc(x: number, y: number)",
}


@pytest.fixture(scope="module")
def http(live: LiveSystem) -> Iterator[httpx.Client]:
    with live.client() as client:
        assert client.post("/v1/transactions", json=REACH).status_code == 200
        yield client


def test_answers_are_as_described(http: httpx.Client) -> None:
    dry = http.post("/v1/transactions?dry_run=true&return=delta", json={"facts": [fact([[60, 61]])]}).json()
    result = TransactionResult.model_validate(dry)
    assert result.changes["reach"].inserted == 61
    assert result.delta is not None
    assert sorted(result.delta["reach"].inserted) == [[i, 61] for i in range(61)]
    counts = {
        r.relation: r.counts.all for r in Relations.model_validate(http.get("/v1/relations").json()).relations
    }
    assert (counts["arc"], counts["reach"]) == (60, 60 * 61 // 2)
    assert len(Rules.model_validate(http.get("/v1/rules").json()).rules) == 2


def fact(tuples: list[list[Any]], weight: int = 1) -> dict[str, Any]:
    return {"relation": "arc", "tuples": tuples, "weight": weight}


def test_a_page_chain_stays_in_its_epoch(http: httpx.Client) -> None:
    expected = sorted([i, j] for i in range(60) for j in range(i + 1, 61))
    rows: list[list[Any]] = []
    cursor, weight = None, 1
    while True:
        parameters = {"limit": 500} | ({"cursor": cursor} if cursor else {})
        page = FactsPage.model_validate(http.get("/v1/relations/reach/facts", params=parameters).json())
        rows += page.tuples
        cursor = page.cursor
        assert http.post("/v1/facts", json=fact([[70, 0]], weight)).status_code == 200
        weight = -weight
        if cursor is None:
            break
    if weight == -1:
        assert http.post("/v1/facts", json=fact([[70, 0]], -1)).status_code == 200
    assert rows == expected


@pytest.mark.parametrize(
    ("goal", "rows"),
    [
        ("reach(57, y)", [[58], [59], [60]]),
        ("reach(x, 2)", [[0], [1]]),
        ("reach(x, x)", []),
        ("reach(_, y)", [[i] for i in range(1, 61)]),
        ("reach(0, 60)", [[]]),
    ],
)
def test_goals(http: httpx.Client, goal: str, rows: list[list[int]]) -> None:
    answer = http.post("/v1/query", json={"query": goal}).json()
    QueryPage.model_validate(answer)
    assert answer["tuples"] == rows


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("reach(x, y), !arc(x, y), y - x = 2, x < 3", [[0, 2], [1, 3], [2, 4]]),
        ("n = count : { reach(_, _) }", [[60 * 61 // 2]]),
        ("q(x, count(y)) :- reach(x, y), x > 57", [[58, 2], [59, 1]]),
        ('reach(58, x), s = cat(to_string(x), "!")', [[59, "59!"], [60, "60!"]]),
        ("arc(x, 1), n = max y : { reach(x, y) }", [[0, 60]]),
        ("reach(60, x), arc(x, _)", []),
    ],
)
def test_conjunctions(http: httpx.Client, query: str, rows: list[list[Any]]) -> None:
    answer = http.post("/v1/query", json={"query": query}).json()
    QueryPage.model_validate(answer)
    assert sorted(answer["tuples"]) == rows


def test_a_conjunction_over_symbols_and_many_blocks(http: httpx.Client) -> None:
    rows = [[f"s{i % 7_000}", f"s{i * 31 % 9_000}"] for i in range(20_000)]
    http.post("/v1/facts", json={"relation": "link", "tuples": rows})
    expected = sorted({(a, b, f"{a}-{b}") for a, b in map(tuple, rows) if a < b})
    found: list[list[Any]] = []
    cursor, weight = None, 1
    while True:
        body = {"query": 'link(a, b), a < b, s = cat(a, "-", b)', "limit": 4_000, "cursor": cursor}
        page = http.post("/v1/query", json=body).json()
        found += page["tuples"]
        cursor = page["cursor"]
        # Epochs go on meanwhile.
        assert http.post(
            "/v1/facts", json={"relation": "link", "tuples": [["a", "b"]], "weight": weight}
        ).is_success
        weight = -weight
        if cursor is None:
            break
    assert sorted(map(tuple, found)) == expected
    known = {(a, b) for a, b in map(tuple, rows)}
    answer = http.post("/v1/query", json={"query": 'link("s31", y), link(x, "s31"), !link(y, x)'}).json()
    assert sorted(map(tuple, answer["tuples"])) == sorted(
        {(y, x) for a, y in known if a == "s31" for x, b in known if b == "s31" and (y, x) not in known}
    )


def metric(http: httpx.Client, name: str) -> float:
    lines = http.get("/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


def test_a_large_relation_is_read_through_an_index(http: httpx.Client) -> None:
    """80,000 pairs are twenty blocks, and every one of them may have any value of the second column."""
    pairs = [[i, i * 7 % 1_000] for i in range(80_000)]
    weight = {"relation": "wide", "weight": 1}
    assert http.post("/v1/facts", json=weight | {"tuples": pairs}).status_code == 200
    assert metric(http, "zedlog_index_builds_total") == 0

    def column(value: int) -> list[list[int]]:
        answer = http.get("/v1/relations/wide/facts", params={"c1": value}).json()
        assert answer["cursor"] is None
        return FactsPage.model_validate(answer).tuples

    # By hand: i * 7 is 21 modulo 1,000 for i = 3, 1,003, 2,003 ...
    rows = [[i, 21] for i in range(3, 80_000, 1_000)]
    assert column(21) == rows
    until(lambda: metric(http, "zedlog_index_running") == 0)
    assert (metric(http, "zedlog_index_builds_total"), metric(http, "zedlog_index_bytes") > 80_000 * 12) == (
        1,
        True,
    )
    assert column(21) == rows
    # An epoch more: one tuple goes and two come.
    assert http.post("/v1/facts", json=weight | {"tuples": [[1_003, 21]], "weight": -1}).status_code == 200
    assert http.post("/v1/facts", json=weight | {"tuples": [[80_003, 21], [-1, 21]]}).status_code == 200
    rows = [[-1, 21], *(row for row in rows if row[0] != 1_003), [80_003, 21]]
    assert column(21) == rows
    # From 21 * 7 = 147 on: what the second columns of the first atom name.
    query = {"query": "wide(x, 21), x < 9, wide(y, x), wide(y, z), n = count : { wide(_, z) }"}
    answer = http.post("/v1/query", json=query).json()
    assert answer["tuples"] == [[3, y, 3, 80] for y in range(429, 80_000, 1_000)]
    assert metric(http, "zedlog_index_builds_total") == 1


def test_a_client_that_goes_leaves_nothing_running(http: httpx.Client, live: LiveSystem) -> None:
    # 60 ^ 5 combinations, of which few are answers.
    query = "arc(a, _), arc(b, _), arc(c, _), arc(d, _), arc(e, _), a + b + c + d + e = 7"
    for _ in range(4):
        with live.client(timeout=0.2) as client, pytest.raises(httpx.ReadTimeout):
            client.post("/v1/query", json={"query": query, "timeout": 60})
    # Both workers are free again.
    answer = http.post("/v1/query", json={"query": "arc(x, y), arc(y, 2)", "timeout": 10}).json()
    assert answer["tuples"] == [[0, 1]]


def test_a_constraint_refuses_what_breaks_it(http: httpx.Client) -> None:
    body = {
        "declarations": ".decl homeless(x: symbol) constraint",
        "rules": [{"rule": "homeless(x) :- employee(x), !works_in(x, _)."}],
    }
    assert http.post("/v1/transactions", json=body).status_code == 200
    hire = {"relation": "employee", "tuples": [["bob"]]}
    for url in ("/v1/facts", "/v1/facts?dry_run=true"):
        document = problem(http.post(url, json=hire), 409, "constraint_violated")
        assert (document["relation"], document["tuples"]) == ("homeless", [["bob"]])
    work = {"relation": "works_in", "tuples": [["bob", "sales"]]}
    assert (
        http.post("/v1/transactions", json={"facts": [hire, work]}).json()["changes"]["employee"]["inserted"]
        == 1
    )
    problem(http.post("/v1/facts", json={**work, "weight": -1}), 409, "constraint_violated")
    again = {"declarations": ".decl employee(x: symbol) constraint"}
    problem(http.post("/v1/transactions", json=again), 409, "constraint_violated")
    assert "homeless(x: symbol) constraint" in http.get("/v1/rules").json()["declarations"]


@pytest.mark.parametrize(
    ("body", "status", "code", "message"),
    [
        ({"facts": [fact([[0, 1]], -2)]}, 409, "negative_weight", "arc"),
        (
            {"facts": [{"relation": "never", "tuples": [["bob", 2.5]], "weight": -1}]},
            409,
            "negative_weight",
            'never("bob", 2.5)',
        ),
        ({"facts": [fact([[0]])]}, 422, "arity_mismatch", "arc"),
        ({"facts": [fact([[0, "a"]])]}, 422, "type_mismatch", "arc"),
        ({"facts": [fact([[0, 1.5]])]}, 422, "type_mismatch", "arc"),
        ({"facts": [fact([[0, True]])]}, 422, "type_mismatch", "arc"),
        ({"rules": [{"rule": "p(x) :- arc(x)."}]}, 422, "arity_mismatch", "arc"),
        ({"rules": [{"rule": 'p(x) :- arc(x, "a").'}]}, 422, "type_mismatch", "arc"),
        ({"rules": [{"rule": "p(x) :- arc(x, _).", "weight": -1}]}, 409, "negative_weight", "p("),
        ({"declarations": ".decl arc(x: symbol, y: number)"}, 422, "declaration_conflict", "arc"),
        ({"facts": [fact([[0, 1]], 2**63 - 1)]}, 409, "weight_overflow", "arc"),
    ],
)
def test_what_the_engine_refuses_changes_nothing(
    http: httpx.Client, body: dict[str, Any], status: int, code: str, message: str
) -> None:
    before = http.get("/v1/relations").json()
    body = {**body, "facts": [{"relation": "other", "tuples": [[1]]}, *body.get("facts", [])]}
    document = problem(http.post("/v1/transactions", json=body), status, code)
    assert message in document["detail"]
    assert http.get(document["instance"]).json()["status"] == "refused"
    assert http.get("/v1/relations").json() == before


def test_an_idempotency_key_applies_once_under_concurrency(http: httpx.Client, live: LiveSystem) -> None:
    answers: list[dict[str, Any]] = []

    def post() -> None:
        with live.client() as client:
            body = {"relation": "once", "tuples": [["x"]]}
            answers.append(client.post("/v1/facts", json=body, headers={"Idempotency-Key": "k1"}).json())

    threads = [threading.Thread(target=post) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({(a["transaction"], a["epoch"]) for a in answers}) == 1
    assert http.get("/v1/relations/once/facts?domain=asserted").json()["weights"] == [1]


def test_reading_one_s_own_writes(http: httpx.Client) -> None:
    pending = http.post("/v1/facts?wait=false", json={"relation": "own", "tuples": [[1]]})
    assert pending.status_code == 202
    while (status := http.get(pending.headers["location"]).json())["status"] == "pending":
        pass
    token = status["result"]["token"]
    assert http.get("/v1/relations/own/facts", params={"at_least": token}).json()["tuples"] == [[1]]


def test_integers_in_a_column_that_is_declared_float(http: httpx.Client) -> None:
    weighs = {"relation": "weighs", "tuples": [["a", 2], ["b", 2.5], ["c", 2.0]]}
    body = {"declarations": ".decl weighs(x: symbol, w: float)", "facts": [weighs]}
    assert http.post("/v1/transactions", json=body).json()["changes"]["weighs"]["inserted"] == 3
    page = http.get("/v1/relations/weighs/facts?w=2")
    assert page.json()["tuples"] == [["a", 2.0], ["c", 2.0]]
    assert "2.0" in page.text
    text = {"program": 'weighs("a", 2). weighs("d", 3).', "weight": 1}
    assert http.post("/v1/rules", json=text).json()["changes"]["weighs"]["inserted"] == 1
    assert http.get("/v1/relations/weighs/facts?x=a&domain=asserted").json()["weights"] == [2]
    for wrong in (2**53 + 1, True, "2"):
        one = {"relation": "weighs", "tuples": [["a", wrong]]}
        problem(http.post("/v1/facts", json=one), 422, "type_mismatch")
    assert problem(http.post("/v1/query", json={"query": "weighs(x, 2)"}), 422, "type_mismatch")["line"] == 1
    assert len(http.post("/v1/query", json={"query": "weighs(x, 2.0)"}).json()["tuples"]) == 2


def test_an_emptied_relation_that_a_rule_reads_stays_known(http: httpx.Client) -> None:
    fact = {"relation": "left", "tuples": [["a"]]}
    body = {"facts": [fact], "rules": [{"rule": "behind(x) :- left(x)."}]}
    assert http.post("/v1/transactions", json=body).status_code == 200
    assert http.post("/v1/facts", json={**fact, "weight": -1}).status_code == 200
    for name in ("left", "behind"):
        known = http.get(f"/v1/relations/{name}").json()
        assert (known["columns"], known["counts"]["all"]) == ([{"name": "x", "type": None}], 0)
        for bound in ("", "?x=a", "?domain=asserted"):
            assert http.get(f"/v1/relations/{name}/facts{bound}").json()["tuples"] == []
        for query in (f"{name}(x)", f'{name}("a")', f"{name}(x), x != 1", f"n = max x : {{ {name}(x) }}"):
            assert http.post("/v1/query", json={"query": query}).json()["tuples"] == []


def test_a_body_that_never_ends_is_cut_off(live: LiveSystem) -> None:
    sent = 0

    def chunks() -> Iterator[bytes]:
        nonlocal sent
        while True:
            sent += 2**20
            yield b" " * 2**20

    with live.client() as client:
        problem(client.post("/v1/facts", content=chunks()), 413, "body_too_large")
    # The limit, and what the sockets hold.
    assert sent < 64 * 2**20 + 16 * 2**20


def test_ten_thousand_tuples(http: httpx.Client) -> None:
    rows = [[i, f"n{i}"] for i in range(10_000)]
    body = json.dumps({"facts": [{"relation": "big", "tuples": rows}]})
    changes = http.post("/v1/transactions", content=body).json()["changes"]
    assert changes == {"big": {"inserted": 10_000, "deleted": 0}}
    page = http.get("/v1/relations/big/facts?limit=20000").json()
    assert sorted(page["tuples"]) == rows
    assert http.get("/v1/relations/big/facts?c1=n77").json()["tuples"] == [[77, "n77"]]


def test_redis_goes_and_comes_back(http: httpx.Client, live: LiveSystem) -> None:
    before = http.get("/v1/relations/arc").json()["counts"]
    live.kill("server")
    response = http.get("/v1/relations/arc")
    problem(response, 503, "storage_unavailable")
    assert int(response.headers["retry-after"]) >= 1
    problem(http.post("/v1/facts", json=fact([[90, 91]])), 503, "storage_unavailable")
    assert http.get("/healthz").status_code == 200
    assert "redis" in problem(http.get("/readyz"), 503, "storage_unavailable")["missing"]
    live.start("server")
    live.wait_ready()
    assert http.get("/v1/relations/arc").json()["counts"] == before
    assert http.post("/v1/facts", json=fact([[90, 91]])).json()["changes"]["arc"]["inserted"] == 1


def test_without_an_engine_writes_are_kept_for_later(http: httpx.Client, live: LiveSystem) -> None:
    live.kill("engine")
    # A query needs none.
    assert http.post("/v1/query", json={"query": "arc(x, 2), reach(x, 3)"}).json()["tuples"] == [[1]]
    pending = http.post("/v1/facts?wait=false", json=fact([[95, 96]]))
    assert pending.status_code == 202
    live.start("engine")
    live.wait_ready()
    while (status := http.get(pending.headers["location"]).json())["status"] == "pending":
        pass
    assert status["status"] == "committed"
    assert http.post("/v1/query", json={"query": "arc(95, 96)"}).json()["holds"] is True
    # The constraint came back with the program.
    problem(
        http.post("/v1/facts", json={"relation": "employee", "tuples": [["eve"]]}), 409, "constraint_violated"
    )
