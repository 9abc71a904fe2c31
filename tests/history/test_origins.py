"""Where the facts of an explanation come from: their sources, and the transactions that brought them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from engine.data.transaction import Transaction
from engine.explain.rendering import as_mermaid
from engine.explain.rendering_answer import answer_text
from engine.storage.client import DatabaseClient
from engine.storage.embedded import EmbeddedServer
from engine.storage.retention import Retention
from service.app import create_app
from service.explain_models import Explanation
from service.principal import Principal
from service.routes import explain as routes
from service.settings import Settings
from tests.history.stand import Stand
from tests.service.conftest import Http

Json = dict[str, Any]
RULES = [
    {"rule": "tc(x, y) :- edge(x, y)."},
    {"rule": "tc(x, z) :- tc(x, y), edge(y, z)."},
    {"rule": "best(x, min(n)) :- offer(x, n)."},
]


class Asked(Http):
    """A service over the database of a stand."""

    def __init__(self, server: EmbeddedServer, database: str) -> None:
        self.database = DatabaseClient.connect(server.url, database)
        super().__init__(create_app(Settings(database=database), self.database))

    def explain(self, **body: Any) -> Json:
        response = self.post("/v1/explain", body)
        assert response.status_code == 200, response.text
        Explanation.model_validate(response.json())
        return dict(response.json())

    def close(self) -> None:
        self.runner.run(self.database.close())
        super().close()


@pytest.fixture
def stand(client: redis.Redis, database: str) -> Stand:
    stand = Stand(client, database, Retention(epochs=50, seconds=0))
    stand.step(Transaction.parse(rules=RULES))
    return stand


@pytest.fixture
def asked(server: EmbeddedServer, database: str, stand: Stand) -> Iterator[Asked]:
    asked = Asked(server, database)
    yield asked
    asked.close()


def facts(relation: str, *rows: list[Any], weight: int = 1, **about: Any) -> Transaction:
    return Transaction.parse([{"relation": relation, "tuples": list(rows), "weight": weight}], **about)


def told(transaction: str, author: str | None = None, message: str | None = None, source: Any = None) -> Json:
    return {"transaction": transaction, "author": author, "message": message, "source": source}


def test_a_fact_tells_its_sources_and_since_when_it_has_been_there(stand: Stand, asked: Asked) -> None:
    stand.step(facts("edge", ["a", "b"], ["b", "c"], source="hr", author="ann", message="the first"))  # 2
    stand.step(facts("edge", ["b", "c"], weight=3, author="bob"))  # 3
    stand.step(facts("edge", ["a", "b"], source="crm"))  # 4
    stand.step(facts("edge", ["c", "d"]))  # 5
    stand.step(facts("edge", ["c", "d"], weight=-1))  # 6
    stand.step(facts("edge", ["c", "d"], author="cid", message="again"))  # 7
    stand.step(facts("other", ["x"]))  # 8
    plain = asked.explain(tuple='tc("a", "d")')
    leaves = {id_: node for id_, node in plain["nodes"].items() if node["kind"] == "fact"}
    assert {id_: (node["weight"], node.get("sources")) for id_, node in leaves.items()} == {
        'edge("a","b")': (2, {"crm": 1, "hr": 1}),
        'edge("b","c")': (4, {"hr": 1}),
        'edge("c","d")': (1, None),
    }
    assert not any("since" in node for node in leaves.values())
    found = asked.explain(tuple='tc("a", "d")', origins=True)
    since = {id_: node.pop("since") for id_, node in found["nodes"].items() if "since" in node}
    assert found == plain
    times = {epoch["epoch"]: epoch["time"] for epoch in asked.get("/v1/epochs").json()["epochs"]}
    assert since == {
        f"edge({pair})": {"epoch": epoch, "exact": True, "time": times[epoch], "transactions": [by]}
        for pair, epoch, by in (
            ('"a","b"', 2, told("2-0", "ann", "the first", "hr")),
            ('"b","c"', 2, told("2-0", "ann", "the first", "hr")),
            ('"c","d"', 7, told("7-0", "cid", "again")),
        )
    }
    # At an older epoch it is what was known there.
    old = asked.explain(tuple='edge("c", "d")', as_of=5, origins=True)["nodes"]['edge("c","d")']
    assert (old["since"]["epoch"], old["since"]["transactions"]) == (5, [told("5-0")])


def test_the_text_and_the_diagram_say_it_too(stand: Stand, asked: Asked) -> None:
    stand.step(facts("edge", ["a", "b"], source="hr", weight=1, author="ann", message='the "first"'))
    stand.step(facts("edge", ["a", "b"], source="hr"))
    stand.step(facts("edge", ["a", "b"]))
    line = 'edge("a","b")  (fact, weight 3, from hr (2)'
    assert f"  {line})\n" in answer_text(asked.explain(tuple='tc("a", "b")'))
    found = asked.explain(tuple='tc("a", "b")', origins=True)
    whole = f'{line}, since epoch 2, transaction 2-0 by ann for hr: "the \\"first\\"")\n'
    assert whole in answer_text(found)
    body = {"tuple": 'tc("a", "b")', "origins": True}
    assert asked.post("/v1/explain?format=text", body).text == answer_text(found)
    assert "fact, from hr (2), since epoch 2, transaction 2-0 by ann for hr" in as_mermaid(found)
    ways = answer_text(asked.explain(tuple='edge("a", "b")', all=True, origins=True))
    assert "  fact, weight 3, from hr (2), since epoch 2, transaction 2-0" in ways


def test_a_tuple_that_was_derived_before_is_a_fact_since_it_was_asserted(stand: Stand, asked: Asked) -> None:
    stand.step(facts("edge", ["a", "b"]))
    stand.step(facts("tc", ["a", "b"], author="ann"))
    stand.step(facts("tc", ["a", "b"], weight=2))
    (way, *_) = asked.explain(tuple='tc("a", "b")', all=True, origins=True)["derivations"]
    assert (way["weight"], way["since"]["epoch"]) == (3, 3)
    assert way["since"]["transactions"] == [told("3-0", "ann")]


def test_a_contribution_to_a_fold_that_is_a_fact_tells_it(stand: Stand, asked: Asked) -> None:
    stand.step(facts("offer", ["a", 7]))
    stand.step(facts("best", ["a", 3], ["a", 5], source="hr"))
    (fold,) = asked.explain(tuple='best("a", 3)', origins=True)["nodes"]['best("a",3)']["folds"]
    known = [
        (one["value"], one.get("sources"), one.get("since", {}).get("epoch"))
        for one in fold["contributions"]
        if "weight" in one
    ]
    assert known == [(3, {"hr": 1}, 3), (5, {"hr": 1}, None)]


def test_what_is_older_than_the_kept_epochs_is_not_made_up(
    server: EmbeddedServer, client: redis.Redis, database: str
) -> None:
    stand = Stand(client, database, Retention(epochs=3, seconds=0))
    for number in range(6):
        stand.step(facts("edge", ["a", "b"]) if not number else facts("edge", [str(number), "x"]))
    asked = Asked(server, database)
    found = asked.explain(tuple='edge("a", "b")', origins=True)
    since = {"epoch": 4, "exact": False, "time": None, "transactions": None}
    assert found["nodes"]['edge("a","b")']["since"] == since
    assert "weight" not in answer_text(found)
    assert "since epoch 4 or before)" in answer_text(found)
    asked.close()


def test_a_change_names_its_transactions(stand: Stand, asked: Asked) -> None:
    stand.step(facts("edge", ["a", "b"], source="hr", author="ann", message="why"))
    found = asked.explain(tuple='tc("a", "b")', changed_at=2)
    assert found["committed"]["count"] == 1
    assert found["committed"]["transactions"] == [told("2-0", "ann", "why", "hr")]
    assert '  committed by transaction 2-0 by ann for hr: "why"\n' in answer_text(found)
    assert found["after"]["nodes"]['edge("a","b")']["sources"] == {"hr": 1}


def test_a_principal_sees_only_what_it_may_read(
    stand: Stand, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand.step(facts("secret", ["s"], source="crm", author="eve", message="hush"))
    stand.step(
        Transaction.parse(
            [{"relation": "edge", "tuples": [["a", "b"]]}], source="hr", author="ann", message="plain"
        )
    )
    stand.step(Transaction.parse(rules=[{"rule": "seen(x) :- secret(x)."}], author="eve", message="hush"))
    reader = Principal("narrow", "reader", frozenset({"tc", "edge", "seen"}))
    monkeypatch.setattr(routes, "principal_of", lambda _: reader)
    edge = asked.explain(tuple='tc("a", "b")', origins=True)["nodes"]['edge("a","b")']
    assert (edge["sources"], edge["since"]["transactions"]) == (
        {"hr": 1},
        [told("3-0", "ann", "plain", "hr")],
    )
    # seen("s") came with epoch 4, whose transaction changed what the reader may read, but epoch 2 did not.
    other = asked.explain(tuple='tc("a", "b")', changed_at=2)
    assert other["committed"]["transactions"] == []
    assert "the transactions of this epoch are not yours to read" in answer_text(other)
    for body in ({"tuple": 'seen("s")', "origins": True}, {"tuple": 'tc("a", "b")', "changed_at": 2}):
        answer = asked.post("/v1/explain", body)
        assert answer.status_code == 200
        for word in ("secret", "crm", "hush", "eve"):
            assert word not in answer.text, word
