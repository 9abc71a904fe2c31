"""What a narrowed token may not read, it does not find anywhere: a secret that only a hidden relation holds is looked
for in the answers of the real system to every read, and to every change that the token may try."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from service.access.rights import visible_problem
from service.openapi import rendered
from service.principal import Principal
from tests.access.walk import found, queries
from tests.live import LiveSystem

SECRET, HIDDEN = "canary-7f3a", ("vaultroom", "hintroom", "clashroom", "numberroom")
PROGRAM = f"""
.decl edge(x: symbol, y: symbol)
.decl vaultroom(x: symbol, s: symbol)
.decl clashroom(x: symbol, s: symbol) constraint
.decl openclash(s: symbol) constraint
tc(x, y) :- edge(x, y).
tc(x, z) :- tc(x, y), edge(y, z).
seen(x) :- vaultroom(x, _), edge(x, _).
hintroom(s) :- vaultroom(_, s).
clashroom(x, s) :- edge(x, "clash"), vaultroom(_, s).
openclash(x) :- edge(x, "openclash"), vaultroom(_, _).
numberroom(n) :- edge(_, "number"), vaultroom(_, s), n = to_number(s).
edge("a", "b"). edge("b", "c").
vaultroom("a", "{SECRET}").
"""
# Refused, each in another way, with the secret or a hidden relation in the refusal.
REFUSED = (
    {"facts": [{"relation": "vaultroom", "tuples": [["z", SECRET]], "weight": -1}]},
    {"facts": [{"relation": "vaultroom", "tuples": [[1, 2]]}]},
    {"facts": [{"relation": "vaultroom", "tuples": [["a"]]}]},
    {"facts": [{"relation": "vaultroom", "tuples": [["a", SECRET]], "weight": 2**63 - 1}]},
    {"facts": [{"relation": "edge", "tuples": [["z", "clash"]]}]},
    {"facts": [{"relation": "edge", "tuples": [["z", "number"]]}]},
    {"rules": [{"rule": f'vaultroom(x, "{SECRET}") :- edge(x, _), !vaultroom(x, _).'}]},
    {"rules": [{"rule": f'hintroom("{SECRET}") :- vaultroom(_, _).', "weight": -1}]},
)
# It may read a relation that is not there, whose name is near to that of a hidden one.
READER = {"name": "narrow", "role": "reader", "reads": ["tc", "edge", "seen", "openclash", "vaultroo"]}
WRITER = {**READER, "name": "pen", "role": "writer", "writes": ["edge", "mine"]}


@dataclass
class Database:
    """The running system, who may do what, and all that can be asked for by name."""

    client: httpx.Client
    tokens: dict[str, str]
    values: dict[str, list[Any]]

    def call(self, who: str, method: str, path: str, **options: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.tokens[who]}", **options.pop("headers", {})}
        return self.client.request(method, path, headers=headers, **options)


@pytest.fixture(scope="module")
def database(live: LiveSystem) -> Iterator[Database]:
    with live.client() as client:
        tokens = {}
        admin = client.post("/v1/tokens", json={"name": "admin", "role": "admin"})
        tokens["admin"] = admin.json()["token"]
        client.headers["authorization"] = f"Bearer {tokens['admin']}"
        for token in (READER, WRITER):
            tokens[token["name"]] = client.post("/v1/tokens", json=token).raise_for_status().json()["token"]
        ids = []
        done = client.post("/v1/rules?return=delta", json={"program": PROGRAM}).raise_for_status().json()
        ids.append(done["transaction"])
        for body in REFUSED:
            answer = client.post("/v1/transactions", json=body)
            assert 400 <= answer.status_code < 500, answer.text
            ids.append(answer.json()["transaction"])
        more = {"facts": [{"relation": "vaultroom", "tuples": [["b", SECRET]]}]}
        for query in ("return=delta", "return=delta&dry_run=true"):
            body = (
                more
                if "dry_run" not in query
                else {"facts": [{"relation": "vaultroom", "tuples": [["c", SECRET]]}]}
            )
            ids.append(
                client.post(f"/v1/transactions?{query}", json=body).raise_for_status().json()["transaction"]
            )
        asserted = {"facts": {"vaultroom": [["d", SECRET]]}, "message": "from elsewhere"}
        ids.append(client.put("/v1/sources/hr", json=asserted).raise_for_status().json()["transaction"])
        start = "0-" + done["token"].partition("-")[2]
        for name, about in (
            ("all", {"relations": ["vaultroom", "tc"]}),
            ("some", {"query": "hintroom(s), tc(_, _)"}),
        ):
            client.put(f"/v1/subscriptions/{name}", json={**about, "start": start}).raise_for_status()
        audit = client.post("/v1/audits").raise_for_status().json()["audit"]
        epochs = [epoch["epoch"] for epoch in client.get("/v1/epochs").json()["epochs"]]
        values = {
            "relation": ["tc", "edge", "seen", *HIDDEN, "nowhere", "vaultroo"],
            "rule_id": [*(rule["id"] for rule in client.get("/v1/rules").json()["rules"]), "r0"],
            "transaction_id": ids,
            "job_id": ["j0"],
            "code": ["forbidden"],
            "as_of": epochs,
            "at_least": [done["token"]],
            "limit": [1, 1000],
            "source": ["hr", "nobody"],
            "name": ["all", "some"],
            "audit_id": [audit],
            "goal": [
                'tc("a", "c")',
                'seen("a")',
                'seen("z")',
                f'vaultroom("a", "{SECRET}")',
                'vaultroom("z", "z")',
                'hintroom("z")',
                'clashroom("z", "z")',
                'openclash("a")',
            ],
        }
        del client.headers["authorization"]
        yield Database(client, tokens, values)


def walked(database: Database, who: str) -> dict[str, list[str]]:
    import orjson

    return found(
        lambda method, path, **options: database.call(who, method, path, **options),
        orjson.loads(rendered()),
        database.values,
        {"vaultroom": 2, "hintroom": 1, "clashroom": 2, "numberroom": 1, "nowhere": 1, "vaultroo": 2},
        (SECRET, *HIDDEN),
    )


def test_the_walk_finds_the_secret_where_it_may_be_seen(database: Database) -> None:
    """Else the next test could not fail."""
    assert walked(database, "admin").keys() >= {
        "GET /v1/circuit",
        "GET /v1/epochs",
        "GET /v1/relations",
        "GET /v1/relations/{relation}",
        "GET /v1/relations/{relation}/facts",
        "GET /v1/rules",
        "GET /v1/rules/{rule_id}",
        "GET /v1/transactions/{transaction_id}",
        "GET /v1/transactions",
        "GET /v1/relations/{relation}/facts/history",
        "GET /v1/relations/{relation}/facts/blame",
        "GET /v1/sources",
        "GET /v1/sources/{source}",
        "GET /v1/changes",
        "GET /v1/subscriptions",
        "GET /v1/subscriptions/{name}",
        "GET /v1/subscriptions/{name}/changes",
        "POST /v1/explain",
        "POST /v1/query",
    }


@pytest.mark.parametrize("who", ["narrow", "pen"])
def test_a_narrowed_token_finds_it_nowhere(who: str, database: Database) -> None:
    assert walked(database, who) == {}


def test_what_it_may_see_it_sees(database: Database) -> None:
    relations = database.call("narrow", "GET", "/v1/relations").json()["relations"]
    assert [relation["relation"] for relation in relations] == ["edge", "openclash", "seen", "tc"]
    # Derived from a hidden relation, but given to this reader.
    assert database.call("narrow", "POST", "/v1/query", json={"query": "seen(x)"}).json()["tuples"] == [
        ["a"],
        ["b"],
    ]
    assert len(database.call("narrow", "GET", "/v1/relations/tc/facts").json()["tuples"]) == 3
    rules = database.call("narrow", "GET", "/v1/rules").json()
    assert [rule["rule"].partition("(")[0] for rule in rules["rules"]] == ["tc", "tc"]
    assert "edge" in rules["declarations"]
    first = database.call("narrow", "GET", f"/v1/transactions/{database.values['transaction_id'][0]}").json()
    assert first["result"]["changes"].keys() == {"edge", "tc", "seen"}
    assert first["result"]["delta"].keys() == {"edge", "tc", "seen"}


@pytest.mark.parametrize(
    "query", [query for relation in ("vaultroom", "nowhere") for query in queries(relation, 2)]
)
def test_a_query_is_held_to_all_that_it_reads(query: str, database: Database) -> None:
    """Whether the relation exists or not makes no difference."""
    answer = database.call("narrow", "POST", "/v1/query", json={"query": query})
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


@pytest.mark.parametrize(
    "query",
    [
        f'n = ord("{SECRET}")',
        "tc(x, y), ord(x) < ord(y)",
        "q(ord(x)) :- tc(x, _)",
        'n = 1 + ord(cat("a", "b"))',
    ],
)
def test_the_numbers_of_symbols_are_hidden(query: str, database: Database) -> None:
    """`ord` of a text that some relation holds is another number than of one that none does."""
    assert database.call("narrow", "POST", "/v1/query", json={"query": query}).status_code == 403
    assert database.call("admin", "POST", "/v1/query", json={"query": query}).status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *(("/v1/rules", {"rule": rule}) for rule in (
            "mine(x, s) :- vaultroom(x, s).",
            "mine(x, y) :- tc(x, y) ; vaultroom(x, y).",
            "mine(x, y) :- tc(x, y), !vaultroom(x, _).",
            "mine(x, n) :- tc(x, _), n = count : { vaultroom(_, _) }.",
            "mine(x, count : { vaultroom(_, _) }) :- tc(x, _).",
            "mine(max(s)) :- vaultroom(_, s).",
            "mine(ord(x)) :- tc(x, _).",
            "mine(x) :- tc(x, y), ord(y) > 3.",
            "tc(x, y) :- edge(y, x).",
            "hintroom(x) :- edge(x, _).",
            "mine(x), tc(x, x) :- edge(x, _).",
        )),
        ("/v1/rules", [{"rule": "mine(x) :- tc(x, _)."}, {"rule": "mine(x) :- hintroom(x)."}]),
        ("/v1/rules", {"rule": "hintroom(s) :- vaultroom(_, s).", "weight": -1}),
        ("/v1/rules", {"program": "mine(x) :- tc(x, _).\nvaultroom(\"x\", \"y\")."}),
        ("/v1/rules", {"program": ".decl vaultroom(x: symbol, s: symbol) constraint"}),
        ("/v1/rules", {"program": ".decl edge(x: symbol, y: symbol)\n.decl tc(x: symbol, y: symbol) constraint"}),
        ("/v1/rules", {"program": ".decl vaultroom(x: symbol, s: symbol)", "weight": -1}),
        ("/v1/transactions", {"undeclare": ["vaultroom"]}),
        ("/v1/transactions", {"declarations": ".decl hintroom(x: symbol)"}),
        ("/v1/transactions", {"facts": [{"relation": "edge", "tuples": []}, {"relation": "tc", "tuples": []}]}),
        ("/v1/facts", {"relation": "vaultroom", "tuples": [["x", SECRET]]}),
        ("/v1/facts", [{"relation": "edge", "tuples": [["x", "y"]]}, {"relation": "tc", "tuples": [["x", "y"]]}]),
    ],
    ids=str,
)  # fmt: skip
def test_a_narrowed_writer_changes_and_derives_only_from_what_it_may(
    path: str, body: Any, database: Database
) -> None:
    before = database.call("admin", "GET", "/v1/relations").json()["epoch"]
    for query in ("", "?dry_run=true"):
        answer = database.call("pen", "POST", path + query, json=body)
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), answer.text
    assert database.call("admin", "GET", "/v1/relations").json()["epoch"] == before


def test_it_removes_no_rule_that_it_does_not_see(database: Database) -> None:
    for rule in database.call("admin", "GET", "/v1/rules").json()["rules"]:
        answer = database.call("pen", "DELETE", f"/v1/rules/{rule['id']}")
        sees = rule["rule"].startswith("tc(")
        assert answer.status_code == (403 if sees else 404), rule
        assert SECRET not in answer.text


def test_its_own_rule_comes_and_goes(database: Database) -> None:
    rule = {"rule": "mine(x, y) :- tc(x, y), !edge(x, y)."}
    done = database.call("pen", "POST", "/v1/rules", json=rule)
    assert done.status_code == 200
    assert database.call("pen", "POST", "/v1/rules", json={**rule, "weight": -1}).status_code == 200


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("x", None),
        ("clash", "constraint_violated"),
        ("openclash", "constraint_violated"),
        ("number", "evaluation_error"),
    ],
)
def test_the_outcome_of_its_own_change_tells_of_nothing_hidden(
    target: str, code: str | None, database: Database
) -> None:
    body = {"relation": "edge", "tuples": [["a", target]]}
    for query in ("?return=delta&dry_run=true", "?return=delta"):
        answer = database.call("pen", "POST", f"/v1/facts{query}", json=body)
        assert answer.json().get("code") == code
        assert not [word for word in (SECRET, *HIDDEN) if word in answer.text]
        if code is None:
            assert answer.json()["changes"].keys() <= {"edge", "tc", "seen"}
            assert (answer.json()["cost"], answer.json()["reason"]) == ({}, "")
        # Of a relation that it may read, it sees what is wrong; not the rule, which reads a hidden one.
        if target == "openclash":
            assert (answer.json()["tuples"], answer.json()["rules"]) == ([["a"]], [])
    # The admin sees everything.
    told = database.call("admin", "POST", "/v1/facts?dry_run=true", json=body).text
    assert (SECRET in told) == (target in ("clash", "number"))


def test_others_transactions_are_not_its_own_to_cancel(database: Database) -> None:
    for transaction in database.values["transaction_id"]:
        answer = database.call("pen", "DELETE", f"/v1/transactions/{transaction}")
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


def test_whoever_sees_nothing_is_told_nothing_of_what_runs(database: Database) -> None:
    ready = database.client.get("/readyz").json()
    assert (ready["status"], ready["recovered"], ready["last_fault"]) == ("ready", None, None)


@pytest.mark.parametrize(
    ("problem", "kept"),
    [
        ({"code": "negative_weight", "relation": "tc", "tuples": [["a"]]}, True),
        ({"code": "negative_weight", "relation": "vaultroom", "tuples": [["a"]]}, False),
        ({"code": "negative_weight", "rules": [{"id": "r", "rule": "tc(x) :- tc(x)."}]}, True),
        ({"code": "negative_weight", "rules": [{"id": "r", "rule": "tc(x) :- vaultroom(x)."}]}, False),
        ({"code": "negative_weight"}, False),
        ({"code": "budget_exceeded", "relation": "tc", "rules": ["tc(x) :- vaultroom(x)."]}, False),
        ({"code": "evaluation_error", "binding": {"x": SECRET}}, False),
        ({"code": "one_that_is_made_later", "relation": "tc"}, False),
    ],
)  # fmt: skip
def test_a_refusal_is_left_out_unless_it_is_known_to_tell_of_visible_relations(
    problem: dict[str, Any], kept: bool
) -> None:
    narrow = Principal("kim", "reader", frozenset({"tc"}))
    given = {**problem, "message": f"something with {SECRET}"}
    seen = visible_problem(narrow, given, "What it means.")
    assert seen["code"] == problem["code"]
    assert (SECRET in str(seen)) == kept
    assert visible_problem(Principal("lee"), given, "") == given
