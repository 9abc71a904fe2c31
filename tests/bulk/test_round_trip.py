"""An export, imported again, gives the same tuples: for every type, format, and any text."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.batches import encode_arrow
from engine.bulk.exporting import arrow_of, check_target, write
from engine.bulk.faults import explained, is_sparks
from engine.bulk.request import ExportRequest
from engine.errors import BulkStorageError, InvalidValueError, TargetExistsError, TypeMismatchError
from engine.language.schema import Column, ColumnType
from engine.symbols import SymbolTable
from tests.bulk.conftest import Import

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


def exported(bring: Import, rows: list[Any], columns: list[Column], **body: Any) -> None:
    symbols = SymbolTable()
    table = pa.table(
        [pa.array(values) for values in zip(*rows, strict=True)], names=[f"k{i}" for i in range(len(columns))]
    )
    codes = [
        encode_arrow(table.column(i), c.type or ColumnType.SYMBOL, symbols) for i, c in enumerate(columns)
    ]
    request = ExportRequest.parse({"relation": "r", **body})
    target = bring.folder / request.path
    check_target(target, request)
    decoded = arrow_of(np.stack(codes, axis=1), columns, symbols)
    done = write(bring.session, decoded, columns, request, target, "job")
    assert done.rows == len(rows)
    assert not list(bring.folder.glob(".zedlog-export-*"))


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


def test_triples_come_back_and_other_tuples_are_refused(bring: Import) -> None:
    columns = [Column(name, ColumnType.SYMBOL) for name in "spo"]
    rows = [("<a>", "<p>", '"x\\n\\"y"@en'), ("_:b.c", "<p>", "<é>"), ("<a>", "<p>", '"1"^^<int>')]
    exported(bring, rows, columns, path="t.nt")
    bring(path="t.nt")
    assert set(bring.weighted("triple")) == set(rows)
    for wrong in (("a", "<p>", "<o>"), ("<a>", "_:p", "<o>"), ("<a>", "<p>", '"a"b"')):
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
    assert (bring.folder / "out.csv").read_text() == '"x"\n"a"\n'
    exported(bring, [("b",)], one, path="out.csv", overwrite=True, header=False)
    assert (bring.folder / "out.csv").read_text() == '"b"\n'
    bring.write("mine/precious.txt", "x")
    with pytest.raises(TargetExistsError, match="other things"):
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
    assert "not a triple of N-Triples: a b c" in str(told)
