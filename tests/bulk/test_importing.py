"""Files of every format into facts: values, types, weights, and what is wrong with a file."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.bulk.faults import explained
from engine.errors import (
    ArityError,
    BadRowsError,
    BatchUnreadableError,
    BulkStorageError,
    HeaderMismatchError,
    InvalidRequestError,
    NegativeWeightError,
    PathNotAllowedError,
    SourceUnreadableError,
    TypeMismatchError,
    UnknownRelationError,
    WeightOverflowError,
)
from engine.ontology.triples import parse_triples
from tests.bulk.conftest import Import

DECLARED = ".decl r(x: symbol, n: number, f: float, b: bool)"
ROWS = {("a", 1, 0.5, True): 2, ('b,\n"c"', -7, -1e300, False): 1, ("", 9223372036854775807, 3.0, True): 1}


def test_csv_with_a_header_of_any_order(bring: Import) -> None:
    bring.declare(DECLARED)
    file = bring.write(
        "r.csv",
        'n,b,f,x\n1,true,0.5,a\n-7,false,-1e300,"b,\n""c"""\n1,true,.5,a\n9223372036854775807,true,3,\n',
    )
    done = bring(path=file, relation="r", header=True)
    assert bring.weighted("r") == ROWS
    assert (done.rows, done.tuples, done.weight, done.rejected.number) == (4, 3, 4, 0)


def test_csv_without_names_gets_its_types_from_all_rows(bring: Import) -> None:
    file = bring.write("e.csv.gz", "a;007;1;2.5;true\nb;8;-2;1e3;false\n")
    bring(path=file, relation="e", delimiter=";")
    types = [c.type for c in bring.reasoner.relations()["e"].columns]
    assert types == ["symbol", "symbol", "number", "float", "bool"]
    assert set(bring.weighted("e")) == {("a", "007", 1, 2.5, True), ("b", "8", -2, 1000.0, False)}


def test_csv_columns_by_number_and_name(bring: Import) -> None:
    file = bring.write("t.tsv", "from\tignored\tto\na\tx\tb\n")
    bring(path=file, relation="e", header=True, columns=["to", "from"])
    bring(path=file, relation="f", columns=[3, 1])
    assert bring.weighted("e") == {("b", "a"): 1}
    assert bring.weighted("f") == {("b", "a"): 1, ("to", "from"): 1}
    assert [c.name for c in bring.reasoner.relations()["e"].columns] == ["to", "from"]


def test_json_lines_of_objects_and_arrays(bring: Import) -> None:
    bring.declare(DECLARED)
    lines = [
        {"f": 0.5, "b": True, "x": "a", "n": 1},
        ["a", 1, 0.5, True],
        {"x": 'b,\n"c"', "n": -7, "f": -1e300, "b": False},
        {"x": "", "n": 2**63 - 1, "f": 3, "b": True},
    ]
    file = bring.write("r.jsonl", "\n\n".join(map(json.dumps, lines)))
    bring(path=file, relation="r")
    assert bring.weighted("r") == ROWS


def test_json_lines_are_strict(bring: Import) -> None:
    bring.declare(".decl p(x: symbol, n: number)")
    lines = [
        '{"x": 1, "n": 1}',
        '{"x": "1", "n": "1"}',
        '{"x": "a", "n": 1.0}',
        '{"x": "a"}',
        '["a"]',
        "7",
        "{",
    ]
    lines += ['{"x": "a", "n": 18446744073709551616}', '{"x": "a", "n": 1, "z": 2}', '{"x": null, "n": 1}']
    done = bring(path=bring.write("p.jsonl", "\n".join([*lines, '["ok", 1]'])), relation="p", on_error="skip")
    assert bring.weighted("p") == {("ok", 1): 1}
    assert done.rejected.number == len(lines)
    found = [json.loads(line) for line in bring.rejects.read_bytes().splitlines()]
    assert [row["line"] for row in found] == list(range(1, len(lines) + 1))
    assert [row["text"] for row in found] == lines
    assert "column 1 (x) holds symbol, but '1' is none" in found[0]["reason"]
    assert "the field z is not a column" in found[8]["reason"]


def test_json_lines_of_arrays_into_a_new_relation_need_types(bring: Import) -> None:
    file = bring.write("a.jsonl", '["a", 1]\n')
    with pytest.raises(InvalidRequestError, match="types"):
        bring(path=file, relation="a")
    bring(path=file, relation="a", types=["symbol", "number"])
    assert bring.weighted("a") == {("a", 1): 1}


def test_files_without_rows(bring: Import) -> None:
    for name, text in (("e.csv", ""), ("e.jsonl", ""), ("e.nt", "# nothing\n"), ("h.csv", "x,y\n")):
        done = bring(path=bring.write(name, text), relation="r", header=True) if name == "h.csv" else None
        done = done or bring(path=bring.write(name, text), relation="r")
        assert (done.rows, done.batches, done.declarations) == (0, [], [])
    assert "r" not in bring.reasoner.relations()


def test_a_batch_directory_that_cannot_be_written(bring: Import) -> None:
    bring.write("batches", "a file where a folder should be")
    with pytest.raises(BulkStorageError):
        bring(path=bring.write("e.csv", "a\n"), relation="e")


def test_parquet_by_names_with_weights(bring: Import) -> None:
    bring.declare(DECLARED)
    table = pa.table(
        {
            "n": pa.array([1, -7, 2**63 - 1, 1], pa.int64()),
            "w": pa.array([2, 1, 1, 0], pa.int32()),
            "f": [0.5, -1e300, 3.0, 0.5],
            "b": [True, False, True, True],
            "x": ["a", 'b,\n"c"', "", "a"],
        }
    )
    pq.write_table(table, bring.folder / "r.parquet")
    bring(path="r.parquet", relation="r", weight_column="w")
    assert bring.weighted("r") == ROWS
    with pytest.raises(NegativeWeightError):
        bring(path="r.parquet", relation="r", weight=-2, columns=["x", "n", "f", "b"])
    assert bring.weighted("r") == ROWS


def test_parquet_nulls_and_nan_are_bad_rows(bring: Import) -> None:
    table = pa.table({"x": ["a", None, "c"], "f": pa.array([1.0, 2.0, float("nan")])})
    pq.write_table(table, bring.folder / "r.parquet")
    done = bring(path="r.parquet", relation="r", on_error="skip")
    assert bring.weighted("r") == {("a", 1.0): 1}
    assert [sample["row"] for sample in done.rejected.samples] == [2, 3]


def test_numbers_that_do_not_fit_name_row_and_column(bring: Import) -> None:
    rows = ["1,0.5,k", "18446744073709551615,1,k", "18446744073709551614,1,k", "2,9007199254740993,k"]
    rows += ["3,-9223372036854775809,k", "4,1e-999,k", "5,9007199254740992,18446744073709551615"]
    file = bring.write("n.csv", "\n".join(rows))
    with pytest.raises(
        BadRowsError, match=r"n\.csv, row 2: column 1 \(c0\) holds number, but '18446744073709551615'"
    ):
        bring(path=file, relation="n")
    assert "n" not in bring.reasoner.relations()
    done = bring(path=file, relation="n", on_error="skip")
    assert bring.weighted("n") == {(1, 0.5, "k"): 1, (5, 2.0**53, "18446744073709551615"): 1}
    assert [(sample["row"], sample["reason"]) for sample in done.rejected.samples] == [
        (2, "column 1 (c0) holds number, but '18446744073709551615' does not fit into 64 bits"),
        (3, "column 1 (c0) holds number, but '18446744073709551614' does not fit into 64 bits"),
        (4, "column 2 (c1) holds float, but '9007199254740993' is an integer that is not equal to any float"),
        (5, "column 2 (c1) holds float, but '-9223372036854775809' does not fit into 64 bits"),
        (6, "column 2 (c1) holds float, but '1e-999' does not fit into 64 bits"),
    ]
    bring(path=file, relation="s", types=["symbol"] * 3)
    assert set(bring.weighted("s")) == {tuple(row.split(",")) for row in rows}


def test_objects_of_json_and_facts_do_not_lose_digits_either(bring: Import) -> None:
    lines = [
        '{"x": 9223372036854775807, "f": 1.8446744073709551615e19}',
        '{"x": 1, "f": 18446744073709551616}',
    ]
    lines += ['{"x": 18446744073709551615, "f": 1.0}', '{"x": 2, "f": 9007199254740993}', '{"x": 3, "f": 4}']
    done = bring(path=bring.write("o.jsonl", "\n".join(lines)), relation="o", on_error="skip")
    assert bring.weighted("o") == {(1.8446744073709552e19, 2**63 - 1): 1, (4.0, 3): 1}
    reasons = [sample["reason"] for sample in done.rejected.samples]
    assert reasons == [
        "column 1 (f) holds '18446744073709551616', an integer that does not fit into 64 bits",
        "column 2 (x) holds '18446744073709551615', an integer that does not fit into 64 bits",
        "column 1 (f) holds float, but '9007199254740993' is an integer that is not equal to any float",
    ]
    bring.declare(".decl edge(x: float, y: number)")
    bring.write("facts/edge.facts", "9007199254740993\t1\n1\t18446744073709551615\n1e-999\t1\n2\t2\n")
    done = bring(path="facts", format="facts", on_error="skip")
    assert bring.weighted("edge") == {(2.0, 2): 1}
    assert [sample["reason"] for sample in done.rejected.samples] == [
        "column 1 (x) holds float, but '9007199254740993' is an integer that is not equal to any float",
        "column 2 (y) holds number, but '18446744073709551615' does not fit into 64 bits",
        "column 1 (x) holds float, but '1e-999' does not fit into 64 bits",
    ]


def test_parquet_integers_of_more_than_64_bits_and_decimals(bring: Import) -> None:
    table = pa.table(
        {
            "u": pa.array([1, 2**64 - 1, 2], pa.uint64()),
            "d": pa.array([Decimal(5), Decimal(6), Decimal(10**30)], pa.decimal128(38, 0)),
            "f": [0.5, 1.5, float("inf")],
        }
    )
    pq.write_table(table, bring.folder / "u.parquet")
    done = bring(path="u.parquet", relation="u", on_error="skip")
    assert bring.weighted("u") == {(1, 5, 0.5): 1}
    assert [(sample["row"], sample["reason"]) for sample in done.rejected.samples] == [
        (2, "column 1 (u) holds number, but '18446744073709551615' does not fit into 64 bits"),
        (3, f"column 2 (d) holds number, but '{10**30}' does not fit into 64 bits"),
    ]
    bring(path="u.parquet", relation="s", columns=["u", "d"], types=["symbol", "symbol"])
    expected = {("1", "5"): 1, ("18446744073709551615", "6"): 1, ("2", str(10**30)): 1}
    assert bring.weighted("s") == expected
    bring.declare(".decl held(u: symbol, d: symbol)")
    bring(path="u.parquet", relation="held", columns=["u", "d"])
    assert bring.weighted("held") == expected
    pq.write_table(pa.table({"p": pa.array([Decimal("1.50")])}), bring.folder / "p.parquet")
    with pytest.raises(TypeMismatchError, match=r"the column p of the files .* which a float would round"):
        bring(path="p.parquet", relation="p")
    bring(path="p.parquet", relation="p", types=["symbol"])
    assert bring.weighted("p") == {("1.50",): 1}
    with pytest.raises(TypeMismatchError, match="read as number"):
        bring(path="u.parquet", relation="t", columns=["u"], types=["float"])


def test_weights_of_rows_are_added_up_exactly(bring: Import) -> None:
    largest = 2**63 - 1
    for name, signs in (("a", (1, 1, -1)), ("b", (1, -1, 1))):
        text = "".join(f"x,{sign * largest}\n" for sign in signs)
        bring(path=bring.write(f"{name}.csv", text), relation=name, weight_column=2)
        assert bring.weighted(name) == {("x",): largest}
    file = bring.write("c.csv", f"x,{largest}\ny,1\nx,1\n")
    with pytest.raises(Exception, match="more than 64 bits") as caught:
        bring(path=file, relation="c", weight_column=2)
    told = explained(caught.value)
    assert isinstance(told, WeightOverflowError)
    assert told.detail["tuples"] == [["x"]]
    with pytest.raises(BadRowsError, match="the weight is not an integer between"):
        bring(path=bring.write("d.csv", f"x,{-(2**63)}\n"), relation="d", weight_column=2)


def test_a_header_that_says_types(bring: Import) -> None:
    file = bring.write("h.csv", 'n:symbol,x:number,w:number\n007,1,2\n"",2,1\n')
    bring(path=file, relation="h", header=True, weight_column="w")
    assert bring.weighted("h") == {("007", 1): 2, ("", 2): 1}
    assert str(bring.reasoner.relations()["h"]) == "h(n: symbol, x: number)"
    bring(path=file, relation="f", header=True, columns=["x"], types=["float"])
    assert bring.weighted("f") == {(1.0,): 1, (2.0,): 1}
    bring.declare(".decl s(x: symbol, n: symbol)")
    with pytest.raises(
        TypeMismatchError, match=r"column 1 \(x\) of s holds symbol, but the import has number"
    ):
        bring(path=file, relation="s", header=True, columns=["x", "n"])
    with pytest.raises(HeaderMismatchError, match="set 'header'"):
        bring(path=file, relation="g")


def test_a_folder_of_souffle_facts(bring: Import) -> None:
    bring.declare(".decl edge(x: symbol, y: number)\n.decl node(x: symbol)")
    bring.write("facts/edge.facts", 'a b\t1\r\n"q"\t+2\n')
    bring.write("facts/node.facts", "\nx\n")
    bring(path="facts", format="facts")
    assert bring.weighted("edge") == {("a b", 1): 1, ('"q"', 2): 1}
    assert bring.weighted("node") == {("",): 1, ("x",): 1}
    bring.write("facts/other.facts", "x\n")
    with pytest.raises(UnknownRelationError, match="other"):
        bring(path="facts", format="facts")


NTRIPLES = r"""
# comment
<a> <p> "x\u00e9\n\t\b\f\"\'\\ \U0001F600 \ud83d\ude00" .
<a> <p> "1"^^<http://www.w3.org/2001/XMLSchema#string> . # and a comment
<a> <p> "1"  .
<a>	<p>	"x"@EN-us.
<\u00e9><b><c>.
<é> <b> <c> .
_:a.b <b> _:c.
   <a> <b> "\u0001\u007f" .
<a> <b> "tab	here" .
<a{b> <b> <> .
<a> <p> "\\u00e9 @B"^^<\u00e9A> .
<a> <p> "^^<http://www.w3.org/2001/XMLSchema#string>" .
<a> <p> "\u005C\u0022\u000A"@de .
<a> <p> <b> .
<a> <p> <b> .
"""
NO_TRIPLES = [
    '<a> <b> "\\uD800" .',
    '"a" <b> <c> .',
    "<a> _:b <c> .",
    "<a> <b> <c>",
    '<a> <b> "x" ..',
    '<a> <b> "\\q" .',
    '<a> <b> "\\U00110000" .',
    "<a\\n> <b> <c> .",
    "<a\\u0020> <b> <c\\u000a> .",
    "a\tb\tc",
    "\x01<a>\t<b>\t<c>",
    '<a> <b> "x" . <c> <d> <e> .',
    "<a> <b> <c",
    "<a> <b> <c> .\u2028",
    " \u0085",
]


def test_ntriples_are_those_of_the_ontology_reader(bring: Import) -> None:
    file = bring.write("t.nt.gz", NTRIPLES)
    done = bring(path=file)
    expected: dict[Any, int] = {}
    for triple in parse_triples(NTRIPLES.encode(), ".nt", "t.nt"):
        expected[triple] = expected.get(triple, 0) + 1
    assert bring.weighted("triple") == expected
    assert expected["<é>", "<b>", "<c>"] == 2, "with an escape and without one it is the same triple"
    assert done.rows == 15
    assert bring.steps == ["look", "read", "again"]
    assert [c.name for c in bring.reasoner.relations()["triple"].columns] == ["s", "p", "o"]


def test_what_is_no_triple_is_rejected_with_its_line(bring: Import) -> None:
    text = "\n".join(["# first", "", *NO_TRIPLES, "<a> <b> <c> ."])
    file = bring.write("t.nt", text.encode() + b'\n<a> <b> "\xff" .\n')
    with pytest.raises(BadRowsError) as caught:
        bring(path=file)
    assert "16 rows of 17 cannot be imported; the first is in t.nt, line 3" in str(caught.value)
    assert caught.value.detail["rejected"] == 16
    assert "triple" not in bring.reasoner.relations()
    done = bring(path=file, on_error="skip")
    assert bring.weighted("triple") == {("<a>", "<b>", "<c>"): 1}
    found = [json.loads(line) for line in bring.rejects.read_bytes().splitlines()]
    assert [row["text"] for row in found][:-1] == NO_TRIPLES
    assert [row["line"] for row in found] == [*range(3, 18), 19]
    assert found[-1]["reason"] == "not UTF-8"
    assert done.rejected.samples[0]["file"] == "t.nt"


def test_lines_are_counted_across_the_parts_of_large_files(bring: Import) -> None:
    bring.session.conf.set("spark.sql.files.maxPartitionBytes", "1000")
    lines = [f"<s{i}> <p> <o{i}> ." for i in range(500)]
    lines[77] = lines[333] = "bad"
    names = [bring.write(f"t{k}.nt", "\n".join(lines)) for k in range(2)]
    done = bring(paths=names, on_error="skip", relation="triple")
    places = [(s["file"], s["line"]) for s in done.rejected.samples]
    assert places == [("t0.nt", 78), ("t0.nt", 334), ("t1.nt", 78), ("t1.nt", 334)]
    assert bring.reasoner.count("triple") == 498
    assert set(bring.weighted("triple").values()) == {2}


def test_bad_values_say_row_column_and_type(bring: Import) -> None:
    bring.declare(DECLARED)
    rows = ["a,1,1,true", "a,1.5,1,true", "a,1,nan,true", "a,1,1,yes", "a,1,1", "a,1,1,true,x", "a, 1,1,true"]
    rows += ["a,9223372036854775808,1,true", "a,1,1e999,true", "a,,1,true", '"a","1\u2028","1",true']
    file = bring.write("r.csv", "\n".join(rows).encode() + b"\n\xff,1,1,true\n")
    done = bring(path=file, relation="r", on_error="skip")
    found = [json.loads(line) for line in bring.rejects.read_bytes().splitlines()]
    assert [row["row"] for row in found] == list(range(2, 13))
    assert found[0]["reason"] == "column 2 (n) holds number, but '1.5' is none"
    assert found[3]["reason"] == "not 4 fields"
    assert found[-1]["reason"] == "not UTF-8"
    assert (done.rows, done.tuples) == (12, 1)


def test_a_mode_of_sets_counts_each_tuple_once(bring: Import) -> None:
    file = bring.write("e.csv", "a,b\na,b\nb,c\n")
    bring(path=file, relation="e", mode="set")
    bring(path=file, relation="e", mode="set")
    assert bring.weighted("e") == {("a", "b"): 1, ("b", "c"): 1}
    bring(path=file, relation="e")
    assert bring.weighted("e") == {("a", "b"): 3, ("b", "c"): 2}
    bring(path=file, relation="e", mode="set", weight=-1)
    assert bring.weighted("e") == {}


def test_header_and_columns_that_do_not_fit(bring: Import) -> None:
    bring.declare(".decl e(x: symbol, y: symbol)")
    one = bring.write("one.csv", "x,z\na,b\n")
    with pytest.raises(HeaderMismatchError, match="the columns x, z, but the relation has the columns x, y"):
        bring(path=one, relation="e", header=True)
    with pytest.raises(HeaderMismatchError, match='no column "w"'):
        bring(path=one, relation="e", header=True, columns=["x", "w"])
    with pytest.raises(HeaderMismatchError, match="1 column"):
        bring(path=bring.write("two.csv", "a\n"), relation="e")
    with pytest.raises(ArityError):
        bring(path=one, relation="e", columns=[1])
    with pytest.raises(TypeMismatchError, match=r"column 2 \(y\) of e holds symbol"):
        bring(path=one, relation="e", types=["symbol", "number"])


def test_files_that_are_not_there_or_outside(bring: Import, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "secret.csv"
    outside.write_text("a\n")
    (bring.folder / "link.csv").symlink_to(outside)
    for path in (
        "../secret.csv",
        str(outside),
        "link.csv",
        f"file://{outside}",
        "http://x/y.csv",
        "s3a://b/y.csv",
    ):
        with pytest.raises(PathNotAllowedError):
            bring(path=path, relation="e")
    for path in ("missing.csv", "empty", "gone/missing.csv"):
        (bring.folder / "empty").mkdir(exist_ok=True)
        with pytest.raises(SourceUnreadableError):
            bring(path=path, relation="e", format="csv")
    bring.write("a[1].csv", "a\n")
    with pytest.raises(SourceUnreadableError, match="pattern"):
        bring(path="a[1].csv", relation="e")


def test_a_batch_file_that_changed_is_refused(bring: Import) -> None:
    _, transaction = bring.read(path=bring.write("e.csv", "a,b\n"), relation="e")
    path: Path = bring.store.root / transaction.batches[0].files[0].path
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(BatchUnreadableError, match="SHA-256"):
        bring.apply(transaction)
    path.unlink()
    with pytest.raises(BatchUnreadableError, match="batch directory"):
        bring.apply(transaction)
