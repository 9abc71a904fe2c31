"""Prefixes through a live system: calls, commands, a restart, a rollback, a backup, and feeds."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.backup.dumping import dump_program
from engine.backup.reading import opened
from engine.files.batch import FileRun
from tests.commands import Zedlog, zedlog
from tests.live import LiveSystem

__all__ = ["zedlog"]

EX = ".prefix ex: <http://example.org/>"
RDF = ".prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#>"
TYPE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
PROGRAM = f"""
{EX}
{RDF}
.decl triple(s: symbol, p: symbol, o: symbol)
triple(ex:a, rdf:type, ex:C). triple(ex:C, ex:sub, ex:D).
triple(x, rdf:type, d) :- triple(x, rdf:type, c), triple(c, ex:sub, d).
"""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSystem]:
    with LiveSystem(tmp_path_factory.mktemp("prefixes")) as system:
        with system.client() as http:
            assert http.post("/v1/rules", json={"program": PROGRAM}).status_code == 200
        yield system


@pytest.fixture
def http(live: LiveSystem) -> Iterator[httpx.Client]:
    with live.client() as client:
        yield client


def asked(http: httpx.Client, query: str, **more: Any) -> Any:
    answer = http.post("/v1/query", json={"query": query, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()["tuples"]


def test_calls(http: httpx.Client) -> None:
    assert asked(http, "triple(x, rdf:type, ex:D)") == [["<http://example.org/a>"]]
    assert asked(http, "triple(x, rdf:type, ex:D)", prefixes=True) == [["ex:a"]]
    assert asked(http, "triple(x, rdf:type, c), c != ex:C", prefixes=True) == [["ex:a", "ex:D"]]
    unknown = http.post("/v1/query", json={"query": "triple(x, xx:type, y)"})
    assert (unknown.status_code, unknown.json()["code"], unknown.json()["column"]) == (
        422,
        "unknown_prefix",
        11,
    )
    facts = http.get("/v1/relations/triple/facts", params={"s": "<http://example.org/C>", "prefixes": "true"})
    assert facts.json()["tuples"] == [["ex:C", "ex:sub", "ex:D"]]
    csv = http.get(
        "/v1/relations/triple/facts",
        params={"s": "<http://example.org/C>", "prefixes": "true"},
        headers={"accept": "text/csv"},
    )
    assert csv.text.splitlines()[1] == "ex:C,ex:sub,ex:D"
    (rule,) = http.get("/v1/rules").json()["rules"]
    assert f'"{TYPE}"' in rule["rule"]
    (short,) = http.get("/v1/rules", params={"prefixes": "true"}).json()["rules"]
    assert short["rule"] == "triple(x, rdf:type, d) :- triple(x, rdf:type, c), triple(c, ex:sub, d)."
    assert short["id"] == rule["id"]
    why = http.post("/v1/explain", json={"tuple": "triple(ex:a, rdf:type, ex:D)"})
    assert why.status_code == 200
    assert why.json()["root"]
    added = http.post("/v1/rules", json={"rule": short["rule"]})
    assert added.status_code == 200
    assert http.delete(f"/v1/rules/{rule['id']}").status_code == 200


def test_commands(zedlog: Zedlog) -> None:
    done = zedlog("query", "triple(x, rdf:type, c)", "--prefixes", "--format", "csv")
    assert sorted(done.out.split()[1:]) == ["ex:a,ex:C", "ex:a,ex:D"]
    assert "rdf:type" in zedlog("rules", "list", "--prefixes", "--format", "json").out
    assert zedlog("facts", "add", "triple(ex:b, rdf:type, ex:C).").status == 0
    again = zedlog("facts", "add", "triple(ex:b, rdf:type, ex:C).")
    assert "there before" in again.err
    assert zedlog("history", "triple(ex:b, rdf:type, ex:C)").status == 0
    assert (
        zedlog("facts", "retract", "triple(ex:b, rdf:type, ex:C). triple(ex:b, rdf:type, ex:C).").status == 0
    )
    unknown = zedlog("query", "triple(x, no:such, y)")
    assert unknown.status == 1
    assert "declare it with .prefix no:" in unknown.err
    assert "leave out --json" in zedlog("watch", "triple", "--json", "--prefixes").err


def test_feeds_and_subscriptions_keep_what_a_name_stood_for(http: httpx.Client) -> None:
    new = {"query": "triple(x, tmp:p, y)"}
    assert http.put("/v1/subscriptions/named", json=new).json()["code"] == "unknown_prefix"
    http.post("/v1/transactions", json={"declarations": ".prefix tmp: <http://tmp/>"})
    found = http.put("/v1/subscriptions/named", json=new).json()
    assert found["query"] == 'triple(x, "<http://tmp/p>", y)'
    assert http.post("/v1/transactions", json={"undeclare": ["tmp:"]}).status_code == 200
    row = ["a", "<http://tmp/p>", "b"]
    http.post("/v1/facts", json={"relation": "triple", "tuples": [row]})
    events = http.get("/v1/subscriptions/named/changes", params={"follow": "false"}).text
    assert '["a","b"]' in events
    feed = http.get(
        "/v1/changes", params={"query": "triple(ex:a, rdf:type, c)", "snapshot": "true", "follow": "false"}
    )
    assert feed.status_code == 200
    assert "<http://example.org/D>" in feed.text
    http.post("/v1/facts", json={"relation": "triple", "tuples": [row], "weight": -1})
    http.delete("/v1/subscriptions/named")


def test_rollback_restart_backup_and_dump(live: LiveSystem, http: httpx.Client, tmp_path: Path) -> None:
    before = http.get("/v1/rules").json()
    assert before["declarations"].splitlines()[:2] == [EX, RDF]
    change = {"undeclare": ["ex:"], "declarations": ".prefix ex: <http://other/>\n.prefix new: <http://new/>"}
    assert http.post("/v1/transactions", json=change).status_code == 200
    assert asked(http, "triple(x, rdf:type, c), c = ex:D") == []
    assert asked(http, "triple(x, rdf:type, ex:D)", as_of=before["epoch"]) == [["<http://example.org/a>"]]
    assert http.post("/v1/rollback", json={"to": before["epoch"]}).status_code == 200
    assert sorted(http.get("/v1/rules").json()["declarations"].splitlines()) == sorted(
        before["declarations"].splitlines()
    )
    live.kill("engine")
    live.start("engine")
    live.wait_ready()
    assert http.post("/v1/rules", json={"rule": "p(x) :- triple(x, rdf:type, ex:D)."}).status_code == 200
    assert asked(http, "p(ex:a)") == [[]]
    path = tmp_path / "backup.zip"
    path.write_bytes(http.get("/v1/backup").content)
    backup = opened(path)
    assert EX in backup.manifest.declarations
    dump_program(backup, tmp_path / "dump.dl")
    text = (tmp_path / "dump.dl").read_text()
    assert EX in text
    assert "Souffle does not know .prefix" in text
    # A dump is a program that can be run, and that says the same.
    FileRun.of(text).run(tmp_path, tmp_path / "out", io.BytesIO(), io.BytesIO())
    assert (tmp_path / "out" / "p.csv").read_text() == "<http://example.org/a>\n"
