"""An export, imported again, gives the same tuples: for every type, format, and any text."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.bulk.exporting import Exported, arrow_of, check_target, write
from engine.bulk.faults import explained, is_sparks
from engine.bulk.request import ExportRequest
from engine.data.facts import encode_arrow
from engine.data.symbols import SymbolTable
from engine.errors import (
    BulkStorageError,
    InvalidRequestError,
    InvalidValueError,
    TargetExistsError,
    TypeMismatchError,
)
from engine.language.schema import Column, ColumnType
from service.bulk_models import ExportBody
from service.validation import read_as
from tests.bulk.conftest import Import
from zedlog import Reasoner

COLUMNS = [
    Column("x", ColumnType.SYMBOL),
    Column("n", ColumnType.NUMBER),
    Column("f", ColumnType.FLOAT),
    Column("b", ColumnType.BOOL),
    Column("y", ColumnType.SYMBOL),
]
DECLARED = ".decl r(x: symbol, n: number, f: float, b: bool, y: symbol)"
# Everything that some format has to quote or to escape stands in every example, beside what hypothesis finds.
NASTY = [
    "",
    " ",
    '"',
    '""',
    "a,b",
    "a\tb",
    "a\nb",
    "a\r\nb",
    "\r",
    "\n",
    "\\",
    "\\n",
    "'",
    "é\U0001f600",
    "\ufffd",
]
NASTY += [
    "null",
    "NaN",
    "true",
    "1",
    "\x00",
    "\x1f\x7f\x85\u2028",
    "x" * 5000,
    "a\\",
    '\\"',
    " a ",
    "#c",
    "\ufeffa",
]
_numbers = itertools.count()
tuples = st.lists(
    st.tuples(
        st.text(max_size=8),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False, allow_infinity=False).map(lambda f: f + 0.0),
        st.booleans(),
        st.text(alphabet='",\\\n\r\t ab', max_size=6),
    ),
    max_size=20,
)


def exported(
    bring: Import, rows: list[Any], columns: list[Column], left_out: int = 0, **body: Any
) -> Exported:
    symbols = SymbolTable()
    table = pa.table(
        [pa.array(values) for values in zip(*rows, strict=True)], names=[f"k{i}" for i in range(len(columns))]
    )
    codes = [
        encode_arrow(table.column(i), c.type or ColumnType.SYMBOL, symbols) for i, c in enumerate(columns)
    ]
    request = read_as(ExportBody, {"relation": "r", **body}).request()
    target = bring.folder / request.path
    check_target(target, request)
    decoded = arrow_of(np.stack(codes, axis=1), columns, symbols)
    done = write(bring.session, decoded, columns, request, target, "job")
    assert done.rows == len(rows) - left_out
    assert not list(bring.folder.glob(".zedlog-export-*"))
    return done


@pytest.mark.parametrize("format", ["csv", "jsonl", "parquet"])
@settings(max_examples=2, derandomize=True, suppress_health_check=list(HealthCheck), deadline=None)
@given(found=tuples)
def test_any_tuple_comes_back(bring: Import, format: str, found: list[Any]) -> None:
    rows = {
        *found,
        *[(text, i, float(i) / 3, i % 2 == 0, text) for i, text in enumerate(NASTY)],
        ("a", -(2**63), -1.7976931348623157e308, True, "b"),
        ("a", 2**63 - 1, 5e-324, False, "b"),
    }
    name = f"out{next(_numbers)}"
    exported(bring, sorted(rows), COLUMNS, path=name, format=format)
    relation = f"r{next(_numbers)}"
    bring.declare(DECLARED.replace(" r(", f" {relation}("))
    options = {"header": True} if format == "csv" else {}
    bring(path=name, format=format, relation=relation, **options)
    assert set(bring.weighted(relation)) == rows
    assert set(bring.weighted(relation).values()) == {1}


ODD_TEXTS = [
    *NASTY,
    "0",
    "-0",
    "1.0",
    "1e3",
    "007",
    "false",
    "null",
    "x:symbol",
    "<a>",
    "18446744073709551615",
]
ODD_NUMBERS = [-(2**63), 2**63 - 1, 2**53 + 1, 0, -1]
ODD_FLOATS = [5e-324, -1.7976931348623157e308, 1e16, 2.0, 0.1, -0.0, 2.0**63, 1e-7]


@pytest.mark.parametrize("format", ["csv", "tsv", "jsonl", "parquet"])
def test_odd_values_come_back_with_their_types_into_a_new_relation(bring: Import, format: str) -> None:
    rows = [
        (text, ODD_NUMBERS[i % len(ODD_NUMBERS)], ODD_FLOATS[i % len(ODD_FLOATS)], i % 2 == 0, text[::-1])
        for i, text in enumerate(ODD_TEXTS)
    ]
    header = {"header": True} if format in ("csv", "tsv") else {}
    exported(bring, rows, COLUMNS, path=f"odd.{format}")
    bring(path=f"odd.{format}", relation="r", columns=[c.name for c in COLUMNS], **header)
    assert set(bring.weighted("r")) == set(rows)
    assert [c.type for c in bring.reasoner.relations()["r"].columns] == [c.type for c in COLUMNS]
    assert {type(v) for row in bring.weighted("r") for v in row} == {str, int, float, bool}
    if header:
        # Texts alone, which nothing but the header tells from numbers and bools; and a line with nothing in it.
        texts = [("1", "true"), ("2", "false")]
        exported(bring, texts, [COLUMNS[0], COLUMNS[4]], path=f"texts.{format}")
        bring(path=f"texts.{format}", relation="texts", **header)
        assert set(bring.weighted("texts")) == set(texts)
        exported(bring, [("",)], COLUMNS[:1], path=f"empty.{format}")
        bring(path=f"empty.{format}", relation="empty", **header)
        assert bring.weighted("empty") == {("",): 1}


def test_a_header_of_names_alone_is_for_others(bring: Import) -> None:
    exported(bring, [("1", 2)], COLUMNS[:2], path="plain.csv", types=False)
    assert (bring.folder / "plain.csv").read_text() == '"x","n"\n"1","2"\n'
    bring(path="plain.csv", relation="r", header=True)
    assert bring.weighted("r") == {(1, 2): 1}
    with pytest.raises(InvalidRequestError, match="no effect"):
        ExportRequest("r.parquet", "parquet", relation="r", types=False)


def test_what_a_range_says_of_a_literal_is_derived_and_left_out(bring: Import) -> None:
    reasoner = Reasoner()
    reasoner.apply(
        facts={"t": [((s, "<p>", o), 1) for s, o in (("<a>", '"1"'), ("<a>", "<b>"))]},
        rules=[('t(o, "<type>", "<C>") :- t(_, "<p>", o).', 1)],
    )
    derived = [("<b>", "<type>", "<C>"), ('"1"', "<type>", "<C>")]
    assert set(reasoner.facts("t", "derived")) == set(derived)
    columns = [Column(name, ColumnType.SYMBOL) for name in "spo"]
    assert exported(bring, reasoner.facts("t"), columns, path="t.nt", left_out=1).rows == 3
    assert '"1" <type>' not in (bring.folder / "t.nt").read_text()


def test_generalised_triples_are_left_out_and_counted(bring: Import) -> None:
    columns = [Column(name, ColumnType.SYMBOL) for name in "spo"]
    rdf = [("<a>", "<p>", '"1"'), ("_:b", "<p>", "<c>")]
    generalised = [('"1"', "<type>", "<C>"), ("<a>", "_:p", "<c>"), ("<a>", '"p"@en', "_:c")]
    done = exported(bring, rdf + generalised, columns, path="t.nt", left_out=3)
    assert (done.rows, done.left_out) == (2, 3)
    bring(path="t.nt")
    assert set(bring.weighted("triple")) == set(rdf)
    with pytest.raises(Exception, match="not a triple"):
        exported(bring, rdf + generalised, columns, path="u.nt", strict=True)
    with pytest.raises(InvalidRequestError, match="no effect"):
        ExportRequest("r.csv", "csv", relation="r", strict=True)


def test_triples_come_back_and_other_tuples_are_refused(bring: Import) -> None:
    columns = [Column(name, ColumnType.SYMBOL) for name in "spo"]
    rows = [("<a>", "<p>", '"x\\n\\"y"@en'), ("_:b.c", "<p>", "<é>"), ("<a>", "<p>", '"1"^^<int>')]
    exported(bring, rows, columns, path="t.nt")
    bring(path="t.nt")
    assert set(bring.weighted("triple")) == set(rows)
    for wrong in (("a", "<p>", "<o>"), ("<a>", "p", "<o>"), ("<a>", "<p>", '"a"b"')):
        with pytest.raises(Exception, match="not a triple"):
            exported(bring, [wrong], columns, path="u.nt")
    with pytest.raises(TypeMismatchError):
        exported(bring, [("<a>", 1)], [columns[0], COLUMNS[1]], path="u.nt")
    assert not (bring.folder / "u.nt").exists()


def test_an_export_replaces_only_an_earlier_one_and_only_when_told(bring: Import) -> None:
    one = [Column("x", ColumnType.SYMBOL)]
    exported(bring, [("a",)], one, path="out.csv")
    with pytest.raises(TargetExistsError):
        exported(bring, [("b",)], one, path="out.csv")
    assert (bring.folder / "out.csv").read_text() == '"x:symbol"\n"a"\n'
    exported(bring, [("b",)], one, path="out.csv", overwrite=True, header=False)
    assert (bring.folder / "out.csv").read_text() == '"b"\n'
    bring.write("mine/precious.txt", "x")
    with pytest.raises(TargetExistsError, match="other files than those"):
        exported(bring, [("b",)], one, path="mine", format="csv", overwrite=True)
    bring.write("file", "x")
    with pytest.raises(TargetExistsError, match="is a file"):
        exported(bring, [("b",)], one, path="file", format="csv", overwrite=True)
    with pytest.raises(BulkStorageError):
        exported(bring, [("b",)], one, path="file/below.csv")


def test_faults_of_spark_are_told_apart(bring: Import) -> None:
    columns = [Column(name, ColumnType.SYMBOL) for name in "spo"]
    with pytest.raises(Exception, match="not a triple") as caught:
        exported(bring, [("a", "b", "c")], columns, path="u.nt")
    assert is_sparks(caught.value)
    told = explained(caught.value)
    assert isinstance(told, InvalidValueError)
    assert "not a triple of RDF: a b c" in str(told)
