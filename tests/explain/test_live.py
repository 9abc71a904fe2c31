"""Explanations over the real log, engine and snapshot: `POST /v1/explain` and `zedlog explain`."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from engine.explain.rendering import as_text
from engine.explain.rendering_answer import answer_text
from engine.explain.repair import TIME
from engine.storage.client import DatabaseClient
from service.app import create_app
from service.explain_models import Explanation
from service.principal import Principal
from service.routes import explain as routes
from service.settings import Settings
from tests.live import LiveSystem
from tests.service.conftest import Http, problem
from zedlog import Reasoner, explain

FACTS = [
    {"relation": "edge", "tuples": [["a", "b"], ["b", "c"], ["c", "d"], ["d", "b"]]},
    {"relation": "closed", "tuples": [["e"]], "weight": 2},
    {"relation": "arc", "tuples": [["a", "b", 3], ["b", "c", 1], ["a", "c", 9]]},
]
RULES = [
    "tc(x, y) :- edge(x, y).",
    "tc(x, z) :- tc(x, y), edge(y, z), !closed(z).",
    'sp(x, min(0)) :- edge(x, _), x = "a".',
    "sp(y, min(d + c)) :- sp(x, d), arc(x, y, c).",
    "out(x, n) :- edge(x, _), n = count : { tc(x, _) }.",
]
Json = dict[str, Any]


@pytest.fixture(scope="module")
def http(live: LiveSystem) -> Iterator[httpx.Client]:
    with live.client() as client:
        body = {"facts": FACTS, "rules": [{"rule": text} for text in RULES]}
        assert client.post("/v1/transactions", json=body).json()["epoch"] == 1
        yield client


@pytest.fixture(scope="module")
def local() -> Reasoner:
    """The same state in this process."""
    reasoner = Reasoner()
    facts = {
        change["relation"]: [(tuple(row), change.get("weight", 1)) for row in change["tuples"]]
        for change in FACTS
    }
    reasoner.apply(facts=facts, rules=[(text, 1) for text in RULES])  # type: ignore[arg-type]  # read from JSON
    return reasoner


def ask(http: httpx.Client, **body: Any) -> Json:
    response = http.post("/v1/explain", json=body)
    assert response.status_code == 200, response.text
    answer: Json = response.json()
    Explanation.model_validate(answer)
    return answer


def test_every_tuple_has_the_same_proof_as_in_process(http: httpx.Client, local: Reasoner) -> None:
    for relation in local.relations():
        for row in local.facts(relation):
            answer = ask(http, relation=relation, tuple=list(row), as_of=1)
            assert (answer.pop("epoch"), answer.pop("token")[:2]) == (1, "1-")
            assert answer == explain(local, (relation, row))
            assert ask(http, node=answer["root"], as_of=1)["nodes"] == answer["nodes"]


def test_formats(http: httpx.Client) -> None:
    body = {"tuple": 'tc("a", "d")', "as_of": 1}
    text = http.post("/v1/explain?format=text", json=body)
    assert text.headers["content-type"] == "text/plain; charset=utf-8"
    assert text.headers["zedlog-epoch"] == "1"
    assert text.text == as_text(ask(http, **body))
    drawn = http.post("/v1/explain?format=mermaid", json=body)
    assert drawn.text.startswith("flowchart TD\n")
    absent = http.post("/v1/explain?format=mermaid", json={"tuple": 'tc("d", "a")', "repairs": 0})
    assert "none" in problem(absent, 400, "invalid_parameter")["detail"]
    problem(http.post("/v1/explain?format=dot", json=body), 400, "invalid_parameter")


def test_ways_are_paged(http: httpx.Client) -> None:
    whole = ask(http, tuple='tc("b", "b")', all=True, as_of=1)
    assert whole["cursor"] is None
    found, cursor = [], None
    while True:
        page = ask(
            http, tuple='tc("b", "b")', all=True, limit=1, **({"cursor": cursor} if cursor else {"as_of": 1})
        )
        found += page["derivations"]
        cursor = page["cursor"]
        if cursor is None:
            break
    assert found == whole["derivations"]
    first = ask(http, tuple='tc("c", "d")', all=True, limit=1, as_of=1)
    assert first["count"] == 2
    wrong = http.post("/v1/explain", json={"tuple": 'tc("b", "c")', "all": True, "cursor": first["cursor"]})
    problem(wrong, 400, "invalid_cursor")


def test_repairs_are_tried_and_work_and_a_change_is_told(http: httpx.Client) -> None:
    before = ask(http, tuple='tc("d", "a")', repairs=2)
    assert not before["holds"]
    assert before["search"]["dry_runs"] >= 2
    for repair in before["repairs"]:
        assert len(repair) == 1
    changes = [
        {"relation": one["relation"], "tuples": [one["tuple"]], "weight": one["weight"]}
        for one in before["repairs"][0]
    ]
    epoch = http.post("/v1/transactions", json={"facts": changes}).json()["epoch"]
    assert ask(http, tuple='tc("d", "a")')["holds"]
    told = ask(http, tuple='tc("d", "a")', changed_at=epoch)
    assert told["change"] == "appeared"
    assert [(cause["kind"], cause["fact"]) for cause in told["causes"]] == [
        ("fact", before["repairs"][0][0]["fact"])
    ]
    assert told["committed"]["count"] == 1
    (transaction,) = told["committed"]["transactions"]
    assert transaction["author"] is transaction["message"] is transaction["source"] is None
    assert not told["before"]["holds"]
    assert told["after"]["nodes"] == ask(http, tuple='tc("d", "a")', as_of=epoch)["nodes"]
    # The epoch before is as it was, and there no dry run can be made.
    old = ask(http, tuple='tc("d", "a")', as_of=epoch - 1)
    assert not old["holds"]
    assert old["search"] == {
        "complete": False,
        "dry_runs": 0,
        "limit": "repairs are tried at the newest epoch only",
    }
    back = [{**change, "weight": -change["weight"]} for change in changes]
    epoch = http.post("/v1/transactions", json={"facts": back}).json()["epoch"]
    told = ask(http, tuple='tc("d", "a")', changed_at=epoch)
    assert (told["change"], told["causes"][0]["change"]) == ("went", "removed")


def test_repairs_that_were_found_in_time_are_told(
    live: LiveSystem, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that does not answer the second dry run."""
    tried: list[Any] = []
    really = DatabaseClient.wait_outcome

    async def wait(client: DatabaseClient, transaction: str, timeout: float) -> Any:
        tried.append(transaction)
        if len(tried) == 1:
            return await really(client, transaction, timeout)
        return await asyncio.Event().wait()

    monkeypatch.setattr(DatabaseClient, "wait_outcome", wait)
    cancelled: list[str] = []

    async def cancel(_: DatabaseClient, transaction: str) -> bool:
        cancelled.append(transaction)
        return True

    monkeypatch.setattr(DatabaseClient, "cancel", cancel)
    client = DatabaseClient.connect(live._server.url, "test")
    service = Http(create_app(Settings(database="test"), client))
    try:
        answer = service.post("/v1/explain", {"tuple": 'tc("d", "a")', "repairs": 5, "timeout": 5}).json()
    finally:
        service.runner.run(client.close())
        service.close()
    assert [len(repair) for repair in answer["repairs"]] == [1]
    assert answer["rules"]
    assert answer["search"] == {"complete": False, "dry_runs": 2, "limit": TIME}
    assert cancelled == [tried[1]]
    assert f"the search ended at a limit: {TIME}" in answer_text(answer)


def test_a_symbol_that_occurs_nowhere_is_absent_like_others(http: httpx.Client) -> None:
    answer = ask(http, tuple='tc("nowhere", "b")', repairs=1)
    assert not answer["holds"]
    assert [one["change"] for one in answer["repairs"][0]] == ["add"]
    assert ask(http, tuple='tc("nowhere", "b")', why_not=False).keys() == {"epoch", "token", "holds", "root"}


@pytest.mark.parametrize(
    ("body", "status", "code", "says"),
    [
        ({}, 400, "invalid_request", "what to explain"),
        ({"tuple": 'tc("a", "b")', "node": 'tc("a", "b")'}, 400, "invalid_request", "either"),
        ({"tuple": ["a", "b"]}, 400, "invalid_request", "relation"),
        ({"tuple": 'tc("a", "b")', "relation": "tc"}, 400, "invalid_request", "names its relation itself"),
        ({"tuple": 'tc("a", x)'}, 400, "invalid_request", "only constants"),
        ({"tuple": 'tc("a" "b")'}, 422, "syntax_error", ""),
        ({"tuple": 'tc("a")'}, 422, "arity_mismatch", "2 columns"),
        ({"tuple": 'tc("a", 1)'}, 422, "type_mismatch", "symbol"),
        ({"tuple": 'tcc("a", "b")'}, 404, "unknown_relation", "tc"),
        ({"relation": "tcc", "tuple": ["a", "b"]}, 404, "unknown_relation", "tc"),
        ({"relation": "tc", "tuple": ["a"]}, 422, "arity_mismatch", "2 columns"),
        ({"relation": "tc", "tuple": ["a", 1]}, 422, "type_mismatch", "symbol"),
        ({"tuple": 'tc("a", "b")', "size": 0}, 400, "invalid_request", "from 1 to 5000"),
        ({"tuple": 'tc("a", "b")', "repairs": 11}, 400, "invalid_request", "from 0 to 10"),
        ({"tuple": 'tc("a", "b")', "whynot": True}, 400, "invalid_request", "why_not"),
        ({"tuple": 'tc("a", "b")', "as_of": 10_000}, 404, "epoch_not_retained", "10000"),
        ({"tuple": 'tc("a", "b")', "changed_at": 10_000}, 404, "epoch_not_retained", "10000"),
        ({"tuple": 'tc("a", "b")', "changed_at": 1, "all": True}, 400, "invalid_request", "leave out"),
        ({"tuple": 'tc("a", "b")', "timeout": 1e9}, 400, "invalid_parameter", "maximum"),
    ],
)
def test_bad_input(http: httpx.Client, body: Json, status: int, code: str, says: str) -> None:
    assert says in problem(http.post("/v1/explain", json=body), status, code)["detail"]


def test_a_fault_in_the_text_has_its_place(http: httpx.Client) -> None:
    document = problem(http.post("/v1/explain", json={"tuple": 'tc("a" "b")'}), 422, "syntax_error")
    assert (document["line"], document["column"], document["where"]) == (1, 8, "tuple")


def zedlog(live: LiveSystem, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "zedlog", "explain", *arguments, "--url", live.url]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_command_prints_what_the_service_says(http: httpx.Client, live: LiveSystem) -> None:
    done = zedlog(live, 'tc("a", "d")', "--at", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout == as_text(ask(http, tuple='tc("a", "d")', as_of=1))
    assert "at epoch 1" in done.stderr
    whole = json.loads(zedlog(live, 'tc("a", "d")', "--at", "1", "--json").stdout)
    assert whole == ask(http, tuple='tc("a", "d")', as_of=1)
    assert zedlog(live, 'tc("a", "d")', "--mermaid").stdout.startswith("flowchart TD\n")
    assert "2 ways to derive it" in zedlog(live, 'tc("c", "d")', "--all", "--at", "1").stdout
    assert 'tc("a","b") appeared at epoch 1' in zedlog(live, 'tc("a","b")', "--changed", "1").stdout


def test_the_command_says_why_not(http: httpx.Client, live: LiveSystem) -> None:
    plain = zedlog(live, 'tc("d", "a")')
    assert 'tc("d","a")  (does not hold)' in plain.stdout
    assert "repair" not in plain.stdout
    repaired = zedlog(live, 'tc("d", "a")', "--why-not", "--repairs", "1")
    assert "repair 1: add edge(" in repaired.stdout


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("tc(",), 1, "1 | tc("),
        (('tc("a","b")', "--json", "--mermaid"), 2, "not both"),
        (('tc("a","b")', "--changed", "1", "--all"), 2, "leave out"),
        (('tc("d","a")', "--mermaid"), 2, "only the proof"),
        (('tc("a","b")', "--at", "99999"), 1, "99999"),
    ],
)
def test_the_command_refuses_what_is_wrong(
    http: httpx.Client, live: LiveSystem, arguments: tuple[str, ...], status: int, says: str
) -> None:
    done = zedlog(live, *arguments)
    assert done.returncode == status
    assert says in done.stderr, done.stderr


def test_a_reader_of_some_relations_sees_nothing_of_the_others(
    live: LiveSystem, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Principal("narrow", "reader", frozenset({"tc", "arc", "sp"}))
    monkeypatch.setattr(routes, "principal_of", lambda _: reader)
    client = DatabaseClient.connect(live._server.url, "test")
    narrow = Http(create_app(Settings(database="test"), client))
    try:
        refused = narrow.post("/v1/explain", {"tuple": 'edge("a", "b")'})
        assert problem(refused, 403, "forbidden")["relations"] == ["edge"]
        for body in (
            {"tuple": 'tc("a", "d")'},
            {"tuple": 'tc("a", "d")', "all": True},
            {"tuple": 'tc("d", "a")'},
            {"tuple": 'tc("a", "d")', "changed_at": 1},
        ):
            answer = narrow.post("/v1/explain", body)
            assert answer.status_code == 200, answer.text
            assert "edge" not in answer.text
            assert "closed" not in answer.text
        assert (
            narrow.post("/v1/explain", {"tuple": 'tc("a", "d")'}).json()["nodes"]['tc("a","d")']["kind"]
            == "withheld"
        )
        # sp(b) comes by sp(a) and arc, both readable; sp(a) by edge, which is not.
        kinds = {
            id_: node["kind"]
            for id_, node in narrow.post("/v1/explain", {"tuple": 'sp("b", 3)'}).json()["nodes"].items()
        }
        assert kinds['sp("b",3)'] == "withheld"
    finally:
        narrow.runner.run(client.close())
        narrow.close()
