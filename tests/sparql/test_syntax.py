"""Updates taken apart: what looks like a keyword or a brace, and is none, makes no difference."""

from __future__ import annotations

import pytest

from engine.errors import SparqlUnsupportedError
from service.sparql.syntax import Operation, check_query, operations, syntax_error


def kinds(text: str) -> list[str] | None:
    found = operations(text)
    return None if found is None else [operation.kind for operation in found]


def test_the_operations_of_an_update() -> None:
    text = """
    PREFIX : <http://example.org/#>  # DELETE WHERE { }
    INSERT DATA { :a :b "} ; DELETE WHERE {" , '''it's }''', <http://example.org/}> } ;
    """
    assert kinds(text.replace("/}>", "/>")) == ["insert data"]
    found = operations(
        "PREFIX a: <urn:a:> DELETE { ?x a:delete ?y } INSERT { ?x a:insert ?y } WHERE { { ?x a:where ?y } } ;\n"
        "BASE <urn:b> prefix b: <urn:b:> delete where { ?insert b:data [] } ; clear silent default ; DROP ALL ;"
    )
    assert found is not None
    first = "PREFIX a: <urn:a:>\n"
    both = f"{first}BASE <urn:b>\nprefix b: <urn:b:>\n"
    assert found == [
        Operation(
            "modify",
            first,
            "{ ?x a:delete ?y }",
            "{ ?x a:insert ?y }",
            "{ { ?x a:where ?y } }",
        ),
        Operation("modify", both, "{ ?insert b:data [] }", None, "{ ?insert b:data [] }"),
        Operation("clear", both),
        Operation("clear", both),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("# nothing", []),
        ("PREFIX a: <urn:a:>", []),
        ("INSERT DATA { <urn:a> <urn:b> 'LOAD' }", ["insert data"]),
        ("INSERT DATA { <urn:a> <urn:b> \"\"\"a \" } b\"\"\" }", ["insert data"]),
        ("PREFIX load: <urn:> INSERT DATA { load:load load:SERVICE \"x\\\"}\" }", ["insert data"]),
        ("INSERT DATA { <urn:a> <urn:b> ?c } garbage", None),
        ("INSERT DATA { <urn:a> <urn:b>", None),
        ("INSERT { <urn:a> <urn:b> 1 }", None),
        ("SELECT * { ?s ?p ?o }", None),
        ("DELETE DATA { } ; ; ", None),
        ("INSERT DATA { } INSERT DATA { }", None),
        ("DELETE { ?s ?p ?o } WHERE { ?s ?p ?o FILTER(?o<5 && ?o>3) }", ["modify"]),
        ("DELETE { ?s ?p ?o } WHERE { ?s ?p ?o GRAPH ?g { ?s ?p ?o } }", ["modify"]),
        ("INSERT { ?s a:\\# 1 } WHERE { ?s a:x%20. ?s a:y ?z. }", ["modify"]),
        ("CLEAR", None),
    ],
)  # fmt: skip
def test_forms(text: str, expected: list[str] | None) -> None:
    assert kinds(text) == expected


@pytest.mark.parametrize(
    ("text", "what", "column"),
    [
        ("LOAD <http://example.org/a.ttl>", "LOAD", 1),
        ("load silent <http://example.org/a.ttl> INTO GRAPH <urn:g>", "LOAD", 1),
        ("CREATE GRAPH <urn:g>", "CREATE", 1),
        ("COPY <urn:g> TO DEFAULT", "COPY", 1),
        ("MOVE <urn:g> TO DEFAULT", "MOVE", 1),
        ("ADD <urn:g> TO DEFAULT", "ADD", 1),
        ("CLEAR GRAPH <urn:g>", "CLEAR GRAPH", 7),
        ("DROP SILENT NAMED", "DROP NAMED", 13),
        ("WITH <urn:g> DELETE { ?s ?p ?o } WHERE { ?s ?p ?o }", "WITH", 1),
        ("DELETE { ?s ?p ?o } USING <urn:g> WHERE { ?s ?p ?o }", "USING", 21),
        ("INSERT DATA { GRAPH <urn:g> { <urn:a> <urn:b> 1 } }", "GRAPH", 15),
        ("DELETE WHERE { GRAPH ?g { ?s ?p ?o } }", "GRAPH", 16),
        ("INSERT { ?s ?p ?o } WHERE { SERVICE <urn:x> { ?s ?p ?o } }", "SERVICE", 29),
    ],
)
def test_what_has_no_meaning_here_is_named_with_its_place(text: str, what: str, column: int) -> None:
    with pytest.raises(
        SparqlUnsupportedError, match=f"^line 1, column {column}: {what} is not supported: "
    ) as found:
        operations(text)
    assert found.value.detail["source"] == text
    # The second line of two operations.
    with pytest.raises(SparqlUnsupportedError) as later:
        operations(f"INSERT DATA {{ }} ;\n{text}")
    assert (later.value.detail["line"], later.value.detail["column"]) == (2, column)


def test_queries_that_ask_for_other_places() -> None:
    check_query("SELECT ?service ?from { ?service <urn:SERVICE> 'FROM' } # FROM <urn:a>")
    for text in (
        "SELECT * FROM <urn:g> { }",
        "select * from named <urn:g> { }",
        "ASK { service silent <urn:s> { } }",
    ):
        with pytest.raises(SparqlUnsupportedError):
            check_query(text)


def test_a_syntax_error_says_where() -> None:
    error = syntax_error("SELECT *\n{ ?s ?p", 'error at 2:8: expected one of "a", ' + '"b", ' * 100)
    assert str(error) == "line 2, column 8: syntax error: this cannot stand here\n  { ?s ?p\n         ^"
    assert "weird" in str(syntax_error("x", "weird"))
