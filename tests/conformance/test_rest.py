"""What a client sees over HTTP: the same numbers as in process, from a live system of all its processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.conformance.programs import BASE, LEFT_LINEAR, RDFS, distinct, read_lubm
from tests.conformance.rest import count, facts, post, read, rules
from tests.live import LiveSystem

FROM_ONE = "tc1(1, x) :- tc(1, x)."
BATCH = 10_000


@pytest.fixture
def client(live: LiveSystem) -> Iterator[httpx.Client]:
    with live.client(timeout=120) as client:
        yield client


@pytest.mark.parametrize("rules_before_batch", [0, 5, 11], ids=["rules first", "rules between", "rules last"])
def test_rdfs_in_batches_of_ten_thousand(data: Path, client: httpx.Client, rules_before_batch: int) -> None:
    """Each order has a relation of its own, so that one system serves all three."""
    name = f"t{rules_before_batch}"
    texts = [rule.replace("t(", f"{name}(") for rule in RDFS]
    triples = distinct(read_lubm(data)).tolist()
    batches = [triples[start : start + BATCH] for start in range(0, len(triples), BATCH)]
    for position, batch in enumerate(batches):
        if position == rules_before_batch:
            post(client, {"rules": rules(texts)})
        post(client, {"facts": [facts(name, batch)]})
    if rules_before_batch == len(batches):
        post(client, {"rules": rules(texts)})
    assert count(client, name) == 126_732
    # What pages give is what the count says, and the asserted part is what was sent.
    assert len(read(client, name, limit=50_000)[1]) == 126_732
    assert set(read(client, name, domain="asserted", limit=50_000)[1]) == set(map(tuple, triples))


def test_rules_added_and_removed_one_by_one(client: httpx.Client) -> None:
    def total() -> int:
        listed = client.get("/v1/relations").json()["relations"]
        return sum(r["counts"]["all"] for r in listed if r["relation"] in ("e", "tc", "tc1"))

    post(client, {"facts": [facts("e", [[1, 2], [2, 3], [3, 4]])]})
    sizes = [total()]
    for text, weight in [(t, 1) for t in (BASE, LEFT_LINEAR, FROM_ONE)] + [
        (t, -1) for t in (FROM_ONE, LEFT_LINEAR, BASE)
    ]:
        post(client, {"rules": rules([text], weight)})
        sizes.append(total())
    assert sizes == [3, 6, 9, 12, 9, 6, 3]


def test_an_alpha_variant_removes_a_rule_and_an_absent_rule_is_a_conflict(client: httpx.Client) -> None:
    post(client, {"facts": [facts("f", [["a", "b"]])], "rules": rules(["g(x, y) :- f(x, y)."])})
    post(client, {"rules": rules(["g(?one,?two):-f(?one,?two)."], -1)})
    assert count(client, "f") == 1
    before = client.get("/v1/epochs").json()["epochs"][0]["epoch"]
    body = {"facts": [facts("f", [["c", "d"]])], "rules": rules(["g(x, y) :- f(x, y)."], -1)}
    refused = client.post("/v1/transactions", json=body)
    assert refused.status_code == 409
    assert refused.headers["content-type"].startswith("application/problem+json")
    assert refused.json()["code"] == "negative_weight"
    assert client.get("/v1/epochs").json()["epochs"][0]["epoch"] == before
    assert read(client, "f")[1] == [("a", "b")]


def test_a_page_chain_reads_one_epoch_while_others_are_committed(client: httpx.Client) -> None:
    post(client, {"facts": [facts("many", [[i] for i in range(100)])]})
    first = client.get("/v1/relations/many/facts", params={"limit": 30}).json()
    post(client, {"facts": [facts("many", [[i] for i in range(50)], -1), facts("many", [[1000]])]})
    rows = [tuple(row) for row in first["tuples"]]
    cursor = first["cursor"]
    while cursor is not None:
        page = client.get("/v1/relations/many/facts", params={"limit": 30, "cursor": cursor}).json()
        assert page["epoch"] == first["epoch"]
        rows += [tuple(row) for row in page["tuples"]]
        cursor = page["cursor"]
    assert sorted(rows) == [(i,) for i in range(100)]
    assert sorted(read(client, "many")[1]) == [(i,) for i in [*range(50, 100), 1000]]
