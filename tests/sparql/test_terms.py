"""Which symbols are terms, and how a store gives them back; tuples as lines."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyoxigraph import BlankNode, Literal, NamedNode, Quad, RdfFormat, Store, parse

from service.sparql.lines import LineWriter
from service.sparql.terms import _PLAIN, _returned, stored, stored_row

XSD = "http://www.w3.org/2001/XMLSchema#"


@pytest.mark.parametrize(
    ("symbol", "back"),
    [
        ("<http://example.org/a>", None),
        ("<>", None),
        ("_:b0", None),
        ("_:a.b", None),
        ('"text"', None),
        ('"two\\nlines"', None),
        ('"text"@en-gb', None),
        (f'"1"^^<{XSD}integer>', None),
        (f'"01"^^<{XSD}integer>', f'"1"^^<{XSD}integer>'),
        (f'"1"^^<{XSD}int>', f'"1"^^<{XSD}integer>'),
        (f'"1.50"^^<{XSD}decimal>', f'"1.5"^^<{XSD}decimal>'),
        (f'"1"^^<{XSD}boolean>', f'"true"^^<{XSD}boolean>'),
        (f'"2002-10-10T12:00:00.000Z"^^<{XSD}dateTime>', f'"2002-10-10T12:00:00Z"^^<{XSD}dateTime>'),
        (f'"none"^^<{XSD}integer>', None),
        ('"x"^^<http://example.org/type>', None),
    ],
)
def test_a_term_and_how_it_comes_back(symbol: str, back: str | None) -> None:
    assert stored(symbol) == (back or symbol)


@pytest.mark.parametrize(
    "symbol",
    ["alice", "", '"x"@EN', '"a', "<a", '"a"^^<http://www.w3.org/2001/XMLSchema#string>', '"\\u0041"', '"a\tb"',
     "<http://example.org/\\u0041>", '"a" . <urn:s> <urn:p> "b"', "<<( <urn:a> <urn:b> <urn:c> )>>", " <urn:a>", "12"],
)  # fmt: skip
def test_what_is_not_written_as_imports_write_terms_is_none(symbol: str) -> None:
    assert stored(symbol) is None


def test_only_iris_are_predicates_and_no_literal_is_a_subject() -> None:
    assert stored_row(("_:a", "<urn:p>", '"x"')) == ("_:a", "<urn:p>", '"x"')
    assert stored_row(('"x"', "<urn:p>", "<urn:o>")) is None
    assert stored_row(("<urn:s>", "_:p", "<urn:o>")) is None
    assert stored_row(("<urn:s>", "<urn:p>", "o")) is None


TYPES = st.sampled_from(
    ["integer", "decimal", "double", "float", "boolean", "date", "dateTime", "int", "string", "gYear", "time",
     "duration", "byte", "hexBinary"]
)  # fmt: skip
LEXICAL = st.one_of(
    st.from_regex(r"[+-]?[0-9]{1,20}", fullmatch=True),
    st.from_regex(r"[+-]?[0-9]{1,12}\.[0-9]{1,10}(E[+-]?[0-9]{1,2})?", fullmatch=True),
    st.from_regex(
        r"(18|19|20)[0-9]{2}-[01][0-9]-[0-3][0-9](T[0-2][0-9]:[0-6][0-9]:[0-6][0-9](Z|\+00:00)?)?",
        fullmatch=True,
    ),
    st.sampled_from(["true", "false", "1", "0", "INF", "NaN", "TRUE", "P1Y", "24:00:00", ""]),
    st.text(max_size=8),
)
TERMS = st.one_of(
    st.builds(lambda text, kind: Literal(text, datatype=NamedNode(XSD + kind)), LEXICAL, TYPES),
    st.builds(Literal, st.text(max_size=12)),
    st.builds(
        lambda text, tag: Literal(text, language=tag),
        st.text(max_size=5),
        st.sampled_from(["en", "de-ch", "x-a"]),
    ),
    st.builds(BlankNode, st.from_regex(r"[A-Za-z0-9]{1,32}", fullmatch=True)),
    st.builds(
        lambda text: NamedNode(f"http://example.org/{text}"),
        st.from_regex(r"[\w.~é#?=&-]{0,9}", fullmatch=True),
    ),
)


@given(TERMS)
def test_the_fast_way_and_the_store_agree(term: Literal | BlankNode | NamedNode) -> None:
    """Whatever the regular expression takes as plain comes back from a store as it is; and every term of a store is a
    symbol that stands for itself."""
    symbol = str(term)
    if _PLAIN.fullmatch(symbol):
        assert _returned(symbol) == symbol
    scratch = Store()
    scratch.add(Quad(NamedNode("urn:s"), NamedNode("urn:p"), term))
    back = str(next(iter(scratch)).object)
    assert stored(back) == back
    assert stored(symbol) == back


def test_lines_hold_every_triple_and_say_what_they_leave_out() -> None:
    texts = sorted(
        ["<urn:s>", "<urn:p>", "_:b", '"a \\"b\\" é"', f'"01"^^<{XSD}integer>', "plain", "<urn:with space>"]
    )
    code = {text: 10 * i for i, text in enumerate(texts)}
    rows = [
        ("<urn:s>", "<urn:p>", '"a \\"b\\" é"'),
        ("<urn:s>", "<urn:p>", "<urn:s>"),
        ("_:b", "<urn:p>", "<urn:s>"),
        ("<urn:s>", "<urn:p>", "_:b"),
        ("<urn:s>", "<urn:p>", f'"01"^^<{XSD}integer>'),
        ("plain", "<urn:p>", "<urn:s>"),
        ("<urn:s>", "_:b", "<urn:s>"),
        ('"a \\"b\\" é"', "<urn:p>", "<urn:s>"),
        ("<urn:s>", "<urn:p>", "<urn:with space>"),
    ]
    codes = np.array([[code[text] for text in row] for row in rows], np.int64)
    writer = LineWriter(np.array([code[text] for text in texts], np.int64), texts)
    found = writer.lines(codes)
    assert found.varied == [rows[4]]
    assert found.skipped == 3

    def read(data: bytes) -> list[tuple[str, str, str]]:
        quads = parse(data, format=RdfFormat.N_TRIPLES, lenient=True)
        return [(str(q.subject), str(q.predicate), str(q.object)) for q in quads]

    assert read(found.plain) == [rows[0], rows[1], rows[8]]
    assert read(found.blank) == [rows[2], rows[3]]


def test_no_tuples_make_no_lines() -> None:
    none = LineWriter(np.empty(0, np.int64), []).lines(np.empty((0, 3), np.int64))
    assert (none.plain, none.blank, none.varied, none.skipped) == (b"", b"", [], 0)
