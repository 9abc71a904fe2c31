"""LUBM-1 from N-Triples: the known counts, alone and under RDFS, on both placements."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest

from engine.language.parser import parse_program
from engine.spark.session.session import SparkSource
from tests.bulk.conftest import Import
from tests.full import full
from zedlog import Reasoner

ROOT = Path(__file__).parent.parent.parent


def rdfs() -> list[tuple[str, int]]:
    """The six rules of programs/rdfs.dl."""
    text = (ROOT / "programs" / "rdfs.dl").read_text()
    lines = text.split("\n")
    rules = []
    for rule in parse_program(text).rules:
        cut = lines[rule.span.line - 1 : rule.span.end_line]
        rules.append(("\n".join(cut), 1))
    assert len(rules) == 6
    return rules


def count(bring: Import, reasoner: Reasoner, file: str, triples: int, closure: int, rows: int) -> None:
    bring.reasoner = reasoner
    done = bring(path=file)
    assert (done.rows, done.tuples, done.weight, done.rejected.number) == (rows, triples, rows, 0)
    assert reasoner.count("triple") == triples
    reasoner.apply(rules=rdfs())
    assert reasoner.count("triple") == closure


def without_genid(data: Path, folder: Path) -> tuple[str, int]:
    """The file without the lines that contain "genid", and how many are left."""
    lines = gzip.decompress((data / "lubm1.nt.gz").read_bytes()).splitlines(keepends=True)
    kept = [line for line in lines if b"genid" not in line]
    (folder / "named.nt").write_bytes(b"".join(kept))
    return "named.nt", len(kept)


def test_lubm_under_rdfs(bring: Import, data: Path) -> None:
    shutil.copy(data / "lubm1.nt.gz", bring.folder)
    count(bring, Reasoner(), "lubm1.nt.gz", 101_150, 127_022, 103_706)


@full
def test_lubm_without_blank_nodes(bring: Import, data: Path) -> None:
    name, rows = without_genid(data, bring.folder)
    count(bring, Reasoner(), name, 101_067, 124_518, rows)


@full
@pytest.mark.timeout(900)
def test_lubm_on_spark(bring: Import, data: Path, source: SparkSource) -> None:
    shutil.copy(data / "lubm1.nt.gz", bring.folder)
    on_spark = Reasoner("spark", spark=SparkSource(source.options, source.session()))
    count(bring, on_spark, "lubm1.nt.gz", 101_150, 127_022, 103_706)
    name, rows = without_genid(data, bring.folder)
    again = Reasoner("spark", spark=SparkSource(source.options, source.session()))
    count(bring, again, name, 101_067, 124_518, rows)
