"""Answers and explanations of both clients, as rows, tables, trees and HTML."""

from __future__ import annotations

import builtins
from typing import Any

import httpx
import orjson
import polars
import pyarrow as pa
import pytest

from tests.client.conftest import Both
from tests.client.lossy import Script
from tests.live import LiveSystem
from zedlog import Client
from zedlog.client.errors import ClientError, NotFound, ProgramFault
from zedlog.client.html import rows_table

NUMBER = 2_500
TYPED = [("a<b>", 1, 0.5, True), ("naïve", -(2**63), -0.0, False), ("", 2**63 - 1, 1e300, True)]


@pytest.fixture(scope="module", autouse=True)
def facts(live: LiveSystem) -> None:
    with Client(live.url) as client:
        client.program(
            ".decl typed(s: symbol, n: number, f: float, b: bool)\n.decl many(n: number, m: number)\n"
            ".decl limit(domain: symbol, relation: symbol)\n.decl nothing(x: symbol)\n"
        )
        client.add("typed", TYPED)
        client.add("many", [(i, i % 7) for i in range(NUMBER)])
        client.add("limit", [("a", "b"), ("c", "d")])
        client.program(
            'edge("a", "b"). edge("b", "c"). edge("c", "d").\n'
            "tc(x, y) :- edge(x, y). tc(x, z) :- tc(x, y), edge(y, z)."
        )


def test_every_type_comes_back_as_it_was(both: Both) -> None:
    answer = both.query("typed(s, n, f, b)")
    assert answer.types == ["symbol", "number", "float", "bool"]
    assert sorted(both.rows(answer)) == sorted(TYPED)
    table = both.run(answer.to_arrow())
    assert table.schema.types == [pa.string(), pa.int64(), pa.float64(), pa.bool_()]
    assert sorted(tuple(row.values()) for row in table.to_pylist()) == sorted(TYPED)
    frame = both.run(answer.to_polars())
    assert isinstance(frame, polars.DataFrame)
    assert sorted(frame.rows()) == sorted(TYPED)


@pytest.mark.parametrize("page", [None, 700, NUMBER, 100_000])
@pytest.mark.parametrize("limit", [None, 1, 1_500, NUMBER])
def test_all_pages_are_read_once_and_no_more_than_asked_for(
    both: Both, page: int | None, limit: int | None
) -> None:
    expected = {(i, i % 7) for i in range(NUMBER)}
    for answer in (
        both.query("many(n, m)", page=page, limit=limit),
        both.facts("many", page=page, limit=limit),
    ):
        table = both.run(answer.to_arrow())
        rows = both.rows(answer)
        assert len(rows) == len(set(rows)) == (limit or NUMBER)
        assert set(rows) <= expected
        assert [tuple(row.values()) for row in table.to_pylist()] == rows
        pages = list(both.run(answer.pages()))
        assert [row for one in pages for row in one] == rows
        assert all(len(one) <= (page or 10_000) for one in pages)
        assert answer.complete


def test_pages_are_fetched_when_they_are_asked_for(client: Client) -> None:
    answer = client.query("many(n, m)", page=700)
    assert answer.first() == (0, 0)
    assert not answer.complete
    assert "700 rows fetched, and more" in repr(answer)
    assert "more than 700 rows" in answer._repr_html_()
    assert len(answer) == NUMBER
    assert (answer[0], answer[-1], answer[1:3]) == ((0, 0), (NUMBER - 1, (NUMBER - 1) % 7), [(1, 1), (2, 2)])
    assert list(answer) == answer.rows


def test_all_pages_are_of_one_epoch(both: Both, client: Client) -> None:
    client.program(".decl moving(n: number)")
    client.add("moving", [(i,) for i in range(1_500)])
    answer = both.query("moving(n)")
    client.remove("moving", [(i,) for i in range(1_500)])
    assert len(both.rows(answer)) == 1_500
    assert both.rows(both.query("moving(n)")) == []
    assert len(both.rows(both.query("moving(n)", as_of=answer.epoch))) == 1_500


def test_columns_that_are_called_like_parameters(both: Both) -> None:
    assert both.rows(both.facts("limit", where={"domain": "a"})) == [("a", "b")]
    assert both.rows(both.facts("limit", relation="d")) == [("c", "d")]
    assert both.rows(both.facts("typed", b=False, n=-(2**63))) == [TYPED[1]]


def test_a_query_without_variables_holds_or_not(client: Client) -> None:
    yes, no = client.query('edge("a", "b")'), client.query('edge("b", "a")')
    assert (yes.holds, bool(yes), no.holds, bool(no)) == (True, True, False, False)
    assert "holds at epoch" in yes._repr_html_()
    assert not client.query("nothing(x)")
    assert client.query("nothing(x)").to_arrow().num_rows == 0


def test_html_is_escaped(client: Client) -> None:
    shown = client.query("typed(s, n, f, b)")._repr_html_()
    assert "a&lt;b&gt;" in shown
    assert "<b>" not in shown
    assert ">true<" in shown
    many = rows_table(["n"], ["number"], [(i,) for i in range(30)], 20, "30 rows")
    assert many.count("<tr>") == 21
    assert "the first 20 of 30 rows" in many


def test_a_library_that_is_missing_is_named(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **options: Any) -> Any:
        if name == "pandas":
            raise ImportError(name)
        return real(name, *args, **options)

    monkeypatch.setattr("zedlog.client.answers.import_module", lambda name: without(name))
    with pytest.raises(ClientError, match="pandas is not installed; 'pip install pandas' installs it"):
        client.query("typed(s, n, f, b)").to_pandas()


@pytest.mark.parametrize("kind_", ["polars", "arrow", "generator"])
def test_facts_may_come_as_tables(client: Client, kind_: str) -> None:
    table = pa.table({"x": ["a", "b"], "n": [1, 2]})
    rows: Any = {
        "polars": polars.from_arrow(table),
        "arrow": table,
        "generator": (r for r in [("a", 1), ("b", 2)]),
    }
    client.add(f"from_{kind_}", rows[kind_])
    assert client.facts(f"from_{kind_}").rows == [("a", 1), ("b", 2)]


@pytest.mark.parametrize("rows", ["ab", ["ab"], [1], [{"x": 1}]])
def test_what_is_not_rows_is_refused_before_it_is_sent(client: Client, rows: Any) -> None:
    with pytest.raises(TypeError, match=r"tuple"):
        client.add("wrong", rows)


def test_what_a_database_holds(both: Both) -> None:
    relations = {relation.name: relation for relation in both.relations()}
    assert str(relations["typed"]) == "typed(s: symbol, n: number, f: float, b: bool)"
    assert (relations["tc"].counts.derived, relations["tc"].counts.asserted) == (6, 0)
    assert both.relation("tc").columns == relations["tc"].columns
    assert ".decl typed" in both.declarations()
    newest = both.epochs(1)[0]
    assert newest["epoch"] == both.status().epoch
    assert both.circuit()["strata"]
    assert both.circuit_mermaid().startswith("flowchart")
    with pytest.raises(NotFound):
        both.relation("nowhere")


# ---- explanations


def test_a_proof_as_a_tree(both: Both) -> None:
    found = both.explain('tc("a", "d")')
    assert (found.holds, found.complete, found.root) == (True, True, 'tc("a","d")')
    (root,) = found.tree
    assert (root.id, root.kind) == ('tc("a","d")', "rule")
    leaves = {node.id for node in root.walk() if node.kind == "fact"}
    assert leaves == {'edge("a","b")', 'edge("b","c")', 'edge("c","d")'}
    assert leaves < set(found.nodes)
    lines = str(found).splitlines()
    assert len(lines) == sum(1 for _ in root.walk())
    assert lines[0].startswith('tc("a","d")  by r')
    assert found.to_mermaid().startswith("flowchart TD")
    assert found._repr_html_().count("<details") == 3
    assert both.explain("tc", ("a", "d")).data["nodes"] == found.data["nodes"]


def test_the_tree_is_that_of_the_command_line(client: Client) -> None:
    found = client.explain('tc("a", "d")')
    theirs = client.request(
        "POST",
        "/v1/explain",
        params={"format": "text"},
        json={"tuple": 'tc("a", "d")'},
        headers={"accept": "text/plain"},
    )
    assert str(found) == theirs
    assert found.to_mermaid() == client.request(
        "POST",
        "/v1/explain",
        params={"format": "mermaid"},
        json={"tuple": 'tc("a", "d")'},
        headers={"accept": "text/plain"},
    )


def test_a_node_that_was_not_followed_can_be_opened(both: Both) -> None:
    found = both.explain('tc("a", "d")', size=1)
    (open_,) = {node.id for node in found.tree[0].walk() if node.kind == "open" and node.id.startswith("tc")}
    assert not found.complete
    assert both.explain(open_).root == open_ == 'tc("a","c")'


def test_why_not_and_what_would_mend_it(both: Both) -> None:
    plain = both.explain('tc("d", "a")')
    assert (plain.holds, plain.repairs) == (False, [])
    found = both.explain('tc("d", "a")', why_not=True, repairs=1, timeout=60)
    assert len(found.repairs) == 1
    assert [node.kind for node in found.tree[0].children if node.kind == "repair"] == ["repair"]
    with pytest.raises(ClientError, match="only the proof of a tuple that holds has a diagram"):
        found.to_mermaid()


def test_why_it_changed_and_all_ways(both: Both, kind: str) -> None:
    made = both.add("edge", [(f"x{kind}", "b")])
    found = both.explain(f'tc("x{kind}", "d")', changed_at=made)
    assert found.data["change"] == "appeared"
    assert [node.text for node in found.tree if node.text == "after:"] == ["after:"]
    ways = both.explain(f'tc("x{kind}", "b")', all=True)
    assert len(ways.data["derivations"]) == 1
    assert both.explain(f'tc("x{kind}", "b")', at=made.epoch - 1).holds is False


def test_what_cannot_be_explained(both: Both) -> None:
    with pytest.raises(ProgramFault):
        both.explain("tc(")
    with pytest.raises(NotFound):
        both.explain('nowhere("a")')


# ---- what happened


def test_histories_sources_and_going_back(both: Both, kind: str) -> None:
    name = f"past_{kind}"
    both.program(f".decl {name}(x: symbol)")
    first = both.add(name, [("a",)], source=f"hr_{kind}", message="of today")
    both.add(name, [("b",)], source=f"hr_{kind}")
    assert [one["change"] for one in both.history(name, x="a")] == ["appeared"]
    blamed = both.blame(name, x="a")
    assert [one["since"] for one in blamed] == [first.epoch]
    told = both.transactions(source=f"hr_{kind}")
    assert [one["message"] for one in told] == [None, "of today"]
    assert {one["source"]: one["facts"] for one in both.sources()}[f"hr_{kind}"] == 2
    replaced = both.send(
        both.client.transaction(source=f"hr_{kind}", replaces="source"), lambda t: t.add(name, [("c",)])
    )
    assert (replaced.changes[name].inserted, replaced.changes[name].deleted) == (1, 2)
    tried = both.rollback(first.epoch, dry_run=True)
    assert sorted(tried.delta[name].inserted) == [("a",)]
    both.rollback(first.epoch, message="back")
    assert both.rows(both.facts(name)) == [("a",)]


def test_sparql_answers_become_rows(scripted: Any) -> None:
    head = {"zedlog-epoch": "7", "zedlog-token": "7-a"}
    results = {
        "head": {"vars": ["s", "n"]},
        "results": {
            "bindings": [
                {
                    "s": {"type": "uri", "value": "http://x/a"},
                    "n": {"type": "literal", "value": 'say "a"', "xml:lang": "en"},
                },
                {"s": {"type": "bnode", "value": "b"}},
            ]
        },
    }
    json_, nt = "application/sparql-results+json", "application/n-triples"
    network = Script(
        httpx.Response(200, content=orjson.dumps(results), headers={**head, "content-type": json_}),
        httpx.Response(
            200, content=b'{"head": {}, "boolean": true}', headers={**head, "content-type": json_}
        ),
        httpx.Response(
            200, content=b'<http://x/a> <http://x/p> "1" .\n', headers={**head, "content-type": nt}
        ),
    )
    client = scripted(network)
    answer = client.sparql("SELECT * WHERE { ?s ?p ?n }", timeout=3)
    assert (answer.columns, answer.epoch, answer.token) == (["s", "n"], 7, "7-a")
    assert client.rows(answer) == [("<http://x/a>", '"say \\"a\\""@en'), ("_:b", None)]
    assert client.run(answer.to_arrow()).num_rows == 2
    assert client.sparql("ASK {}").holds is True
    graph = client.sparql("CONSTRUCT WHERE { ?s ?p ?o }")
    assert (graph.columns, client.rows(graph)) == (["s", "p", "o"], [("<http://x/a>", "<http://x/p>", '"1"')])
    asked = network.requests[0]
    assert (asked.headers["content-type"], asked.content) == (
        "application/sparql-query",
        b"SELECT * WHERE { ?s ?p ?n }",
    )
    assert dict(asked.url.params) == {"timeout": "3"}
