"""`zedlog owl`: an ontology in, a program out that `zedlog run` takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.cli.main import run

ONTOLOGY = """\
@prefix : <http://e/> . @prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:Dog rdfs:subClassOf :Animal . :owns owl:inverseOf :ownedBy . :id a owl:FunctionalProperty .
"""
DATA = """\
<http://e/rex> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://e/Dog> .
<http://e/eve> <http://e/owns> <http://e/rex> .
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pets.ttl").write_text(ONTOLOGY)
    (tmp_path / "data.nt").write_text(DATA)
    return tmp_path


def test_from_an_ontology_to_its_consequences(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["owl", "pets.ttl", "data.nt", "-o", "pets.dl", "--facts", "triple.facts"]) == 0
    said = capsys.readouterr().err
    assert "3 rules from 2 axioms in 5 triples" in said
    assert "1 axiom without rules" in said
    assert "id is a FunctionalProperty" in said
    assert run(["run", "pets.dl", "-D", "out"]) == 0
    lines = (folder / "out/triple.csv").read_text().splitlines()
    assert "<http://e/rex>\t<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>\t<http://e/Animal>" in lines
    assert "<http://e/rex>\t<http://e/ownedBy>\t<http://e/eve>" in lines
    assert len(lines) == 5 + 2


def test_to_standard_output(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["owl", "pets.ttl"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("// OWL 2 RL rules of pets.ttl: 2 axioms, 3 rules.\n")
    assert "// Dog SubClassOf Animal\n" in out


def test_what_cannot_be_read_or_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "bad.nt").write_text("<http://e/a> <http://e/b> .\n")
    assert run(["owl", "bad.nt"]) == 1
    assert "error: bad.nt, line 1, column " in capsys.readouterr().err
    assert run(["owl", "none.nt"]) == 1
    assert "cannot read none.nt: No such file or directory" in capsys.readouterr().err
    assert run(["owl", "pets.ttl", "-o", "no/such/folder.dl"]) == 1
    assert "cannot write no/such/folder.dl" in capsys.readouterr().err


def test_blank_nodes_that_clash_are_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    owl, rdf = "http://www.w3.org/2002/07/owl#", "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
    (folder / "clash.nt").write_text(
        f"<http://e/A> <{owl}intersectionOf> _:l .\n"
        f"_:l <{rdf}first> <http://e/B> .\n_:l <{rdf}first> <http://e/C> .\n_:l <{rdf}rest> <{rdf}nil> .\n"
    )
    assert run(["owl", "clash.nt"]) == 0
    seen = capsys.readouterr()
    assert "1 blank node has several definitions (_:l)" in seen.err
    assert seen.out.count(":-") == 4
