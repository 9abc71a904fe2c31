"""`make papers` in its tiny size: every row is there, plots are SVG, what is missing is named, and it resumes."""

from __future__ import annotations

import io
import json
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.engine import LINEAR, RDFS, rmat
from benchmarks.papers import data as papers_data
from benchmarks.papers import page, peers
from benchmarks.papers.__main__ import PARTS, kept, main
from benchmarks.papers.sections import COMPARED, Row, Section, Settings, Target, in_words, key, measured
from benchmarks.papers.strategies import compare, crossing, facts_away
from benchmarks.peers import Workload, graph
from engine.files.batch import FileRun
from tests.full import full
from zedlog import Reasoner

ROOT = Path(__file__).resolve().parents[2]


class Run:
    """One folder to measure into."""

    def __init__(self, folder: Path, data: Path) -> None:
        self.folder = folder
        self.page = folder / "docs" / "papers.md"
        self.data = data

    def __call__(self, *arguments: str) -> str:
        main(
            [
                *arguments,
                *("--sizes", "tiny", "--no-peers", "--data", str(self.data)),
                *("--results", str(self.folder / "results"), "--page", str(self.page)),
            ]
        )
        return self.page.read_text()

    def sections(self, part: str) -> dict[str, Section]:
        return kept(self.folder / "results", part).sections()


@pytest.fixture(scope="module")
def nowhere(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """All parts on a machine without data."""
    folder = tmp_path_factory.mktemp("papers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(folder))
        run = Run(folder, folder / "no-data")
        run()
    return run


def assert_on_page(text: str, section: Section) -> None:
    """Each row has a line with a cell for each contestant that took part, and the plot is under it."""
    part = text.partition(f"### {section.title}\n")[2].partition("\n#")[0]
    lines = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")][2:]
    assert [line[0] for line in lines] == [row.name for row in section.rows]
    for line, row in zip(lines, section.rows, strict=True):
        told = [name for name, cell in zip(section.contestants, line[1:], strict=False) if " to " in cell]
        assert told == [name for name in section.contestants if name in row.seconds]
        assert all(len(seconds) >= 3 for seconds in row.seconds.values())
    assert "![" in part
    assert f"sizes `{section.about['size']}`" in part
    assert "load " in part


def assert_svg(path: Path) -> None:
    root = ElementTree.parse(path).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.findall(".//{http://www.w3.org/2000/svg}path")


def assert_plots(page: Path) -> None:
    """The page shows each plot of the folder beside it, and no other."""
    shown = [
        line.partition("](")[2].rstrip(")") for line in page.read_text().splitlines() if line.startswith("![")
    ]
    assert shown
    assert sorted(shown) == sorted(f"papers/{path.name}" for path in (page.parent / "papers").glob("*"))
    for name in shown:
        assert_svg(page.parent / name)


def test_every_row_is_on_the_page(nowhere: Run) -> None:
    text = nowhere.page.read_text()
    measured = {part: nowhere.sections(part) for part in PARTS}
    assert set(measured["aggregates"]) == set(PARTS["aggregates"].SECTIONS)
    assert len(measured["aggregates"]["threads"].rows) == 8
    for sections in measured.values():
        for section in sections.values():
            assert section.rows
            assert_on_page(text, section)
    assert_plots(nowhere.page)


def test_what_is_not_there_is_named(nowhere: Run) -> None:
    text = nowhere.page.read_text()
    assert not nowhere.sections("lubm")
    assert "facts: LUBM-1: the .ntenc files are not in the data folder" in text
    assert "owl rules: LUBM-1 with its ontology: lubm1.nt.gz is not in the data folder" in text
    assert "Galen sizes: Galen: galen.zip is not in the data folder" in text
    assert "gnp10K" not in text, "the tiny size takes graphs of its own"
    assert "tree11: not in the data folder; a generated graph of the same shape stands in for it." in text
    assert "CRDT: crdt.zip is not in the data folder; generated operations stand in for it." in text
    assert "Differential dataflow, ascent, datafrog: their programs are not built" in text
    assert "Souffle: there is no `souffle` on the path." in text
    assert "DYRE: no command was given for it" in text
    assert "pydbsp: no command was given for it" in text
    assert text.count("not at hand") == 1, "the papers' own figures are named as missing once"


@pytest.mark.parametrize(
    "name", ["facts", "rules", *(pytest.param(n, marks=full) for n in ("owl facts", "owl rules"))]
)
def test_lubm_where_it_is(name: str, data: Path, tmp_path: Path) -> None:
    section = measured(PARTS["lubm"].SECTIONS[name], Settings("tiny", 3, data))
    names = [row.name for row in section.rows]
    if name.endswith("facts"):
        assert names[:2] == ["1 fact removed", "1 fact added"]
    elif name == "rules":
        assert len(names) == 2 * len(RDFS)
        assert names[0] == "rule for domains removed"
    else:
        assert names == ["one of 3 rules removed", "one of 3 rules added"]
    assert section.contestants == list(COMPARED)
    path = tmp_path / "papers.md"
    page.write(path, {"lubm": ("LUBM", "Paper.", {name: section}, [])}, "an hour")
    assert_on_page(path.read_text(), section)
    assert_plots(path)


def test_a_part_of_galen(data: Path) -> None:
    """Fewer classes, fewer rows; what is said of roles stays whole."""
    tables, more = papers_data.galen(data, 0.03), papers_data.galen(data, 0.06)
    assert all(map(len, tables.values()))
    assert all(len(tables[name]) < len(more[name]) for name in "pqcu")
    assert all(len(tables[name]) == len(more[name]) for name in "sr")


def test_what_was_measured_is_kept(nowhere: Run, capsys: pytest.CaptureFixture[str]) -> None:
    path = nowhere.folder / "results" / "papers-dyre.json"
    before = path.read_text()
    text = nowhere.page.read_text()
    nowhere("dyre")
    told = capsys.readouterr().out
    assert told.count("kept from before") == len(json.loads(before)["sections"])
    # The section without data is tried again, and is not there again.
    assert "dyre: RDFS: left out." in told
    assert path.read_text() == before
    assert nowhere.page.read_text() == text
    # What was measured in another way is not used.
    file = kept(nowhere.folder / "results", "dyre")
    same = Settings("tiny", 3, nowhere.data)
    assert set(file.sections(key(same))) == set(nowhere.sections("dyre")) != set()
    for other in (
        replace(same, runs=4),
        replace(same, size="small"),
        replace(same, data=nowhere.folder),
        replace(same, peers={"dyre": "dyre"}),
        replace(same, program=Path("peers")),
    ):
        assert file.sections(key(other)) == {}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["lumb"], "there is no part 'lumb'"),
        (["--runs", "2"], "--runs must be at least 3"),
        (["--peer", "dyre"], "--peer must be NAME=COMMAND"),
    ],
)
def test_wrong_options(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert told in capsys.readouterr().err


def settings(**more: object) -> Settings:
    return Settings("tiny", 3, Path("nowhere"), **more)  # type: ignore[arg-type]


def peer(folder: Path, tuples: int) -> str:
    """A command that answers as a peer does."""
    script = folder / "peer.py"
    script.write_text(
        "import json, sys\n"
        "assert sys.argv[1] == 'linear' and open(sys.argv[2] + '/arc').read()\n"
        "changed = {'away': [0.5] * int(sys.argv[3])} if sys.argv[3:] else {}\n"
        f"print(json.dumps({{'bootstrap': [0.25], 'tuples': {tuples}}} | changed))\n"
    )
    return f"{sys.executable} {script}"


def test_a_peer_by_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    chain = np.stack((np.arange(5), np.arange(1, 6)), axis=1)
    work = [("a chain", graph("linear", LINEAR, chain, changes=True))]
    section = peers.compared("Peers", work, settings(peers={"dyre": peer(tmp_path, 15)}))
    rows = {row.name: row for row in section.rows}
    assert rows["a chain"].seconds["dyre"] == [0.25] * 3
    assert rows["a chain, one fact away"].seconds["dyre"] == [0.5] * 100
    assert not any("DYRE" in line for line in section.left_out)
    assert "the fastest peer" in section.meaning
    with pytest.raises(SystemExit, match="the results differ in size"):
        peers.compared("Peers", work, settings(peers={"dyre": peer(tmp_path, 14)}))


def test_souffle_takes_part_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    souffle = tmp_path / "souffle"
    souffle.write_text("#!/bin/sh\nprintf 'tc\\t15\\n'\n")
    souffle.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    chain = np.stack((np.arange(5), np.arange(1, 6)), axis=1)
    section = peers.compared("Peers", [("a chain", graph("linear", LINEAR, chain))], settings())
    assert len(section.rows[0].seconds["souffle"]) == 3
    assert not any(line.startswith("Souffle") for line in section.left_out)


def test_a_peer_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(peers, "PATIENCE", 0.2)
    (tmp_path / "sleep.py").write_text("import time; time.sleep(60)")
    chain = np.stack((np.arange(5), np.arange(1, 6)), axis=1)
    command = f"{sys.executable} {tmp_path / 'sleep.py'}"
    work = [("a chain", graph("linear", LINEAR, chain))]
    section = peers.compared("Peers", work, settings(peers={"pydbsp": command}))
    assert section.contestants == ["Zedlog", "Zedlog, 2 threads"]
    assert "a chain: pydbsp did not end within 0.2 seconds." in section.left_out


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        (graph("linear", LINEAR, np.array([[0, 1], [1, 2], [2, 3]])), "tc\t6\n"),
        (Workload("rdfs", RDFS, {"t": np.array([[7, 0, 8], [8, 0, 9], [5, 4, 7]])}, "t"), "t\t6\n"),
    ],
)
def test_the_program_for_souffle(workload: Workload, expected: str, tmp_path: Path) -> None:
    """It is in the dialect that both understand, and counts the result."""
    for relation, rows in workload.facts.items():
        np.savetxt(tmp_path / relation, rows, fmt="%d")
    out = io.BytesIO()
    FileRun.of(peers.souffle_text(workload)).run(tmp_path, tmp_path, io.BytesIO(), out)
    assert out.getvalue().decode() == expected


def test_strategies_must_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    reasoner = Reasoner("resident", threads=1)
    edges = rmat(30, 60)
    reasoner.apply(facts={"arc": edges}, rules=[(rule, 1) for rule in LINEAR])
    before = set(reasoner.facts("tc"))
    change = facts_away("3 facts", "arc", edges[:3])
    rows = compare(reasoner, change, ("update", "bootstrap"), 3, [])
    assert [row.name for row in rows] == ["3 facts removed", "3 facts added"]
    assert [list(row.seconds) for row in rows] == [["update", "bootstrap"]] * 2
    assert {len(seconds) for row in rows for seconds in row.seconds.values()} == {3}
    assert set(reasoner.facts("tc")) == before
    apply = Reasoner.apply

    def lossy(self: Reasoner, **how: object) -> object:
        if how.get("strategy") == "bootstrap":
            how["facts"] = {"arc": how["facts"]["arc"][1:]}  # type: ignore[index]
        return apply(self, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(Reasoner, "apply", lossy)
    with pytest.raises(SystemExit, match="the strategies do not agree"):
        compare(reasoner, change, ("update", "bootstrap"), 3, [])


def test_missed_targets_are_reported(tmp_path: Path) -> None:
    about = {
        "machine": {"processor": "p", "cores": 2, "python": "3"},
        "command": "make papers",
        "size": "tiny",
        "runs": 3,
        "date": "2000-01-01",
        "load": [1.0, 2.0],
        "seconds": 3.0,
    }
    rows = [Row("1 fact removed", {"update": [1.0, 2.0, 4.0], "bootstrap": [3.0, 3.0, 3.0]}, 1.0)]
    targets = [
        Target("met", 1.1, 1.2),
        Target("too slow", 1.3, 1.2, reason="because"),
        Target("too little", 1.3, 1.6, most=True),
    ]
    section = Section("Title", "Compared.", "wall time", rows, "Meaning.", "facts", targets, [], about)
    path = tmp_path / "papers.md"
    page.write(path, {"part": ("Part", "Paper.", {"one": section}, [])}, "an hour")
    text = path.read_text()
    assert "1 of 3 targets are met. These are missed:" in text
    assert "| Title | too slow | at most 1.2 x | 1.3 x | because |" in text
    assert "| Title | too little | at least 1.6 x | 1.3 x | not known |" in text
    assert "| 1 fact removed | 2 s (1 s to 4 s) | 3 s (3 s to 3 s) |" in text
    assert_plots(path)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(12.345, "12.3 s"), (0.0123, "12.3 ms"), (0.00000456, "4.56 us"), (0.456, "456 ms"), (3600, "3,600 s")],
)
def test_times_in_words(seconds: float, text: str) -> None:
    assert in_words(seconds) == text


def test_where_one_strategy_overtakes_the_other() -> None:
    def row(name: str, update: float) -> Row:
        return Row(f"{name} removed", {"update": [update], "bootstrap": [1.0]})

    slow, fast = row("large", 2.0), row("small", 0.5)
    assert "first row in which `bootstrap` is faster than `update` is: large removed" in crossing(
        [fast, slow], "removed"
    )
    assert crossing([fast], "removed") == "`update` is faster than `bootstrap` in every row that is removed."
    assert crossing([slow], "removed") == "`bootstrap` is faster than `update` in every row that is removed."
    assert crossing([slow], "added") == ""


def test_made_data_has_the_shape_it_claims() -> None:
    tree = papers_data.tree(500, 2, 6)
    assert len(tree) == 500
    assert len(np.unique(tree[:, 1])) == 500, "each node has one parent"
    assert np.bincount(tree[:, 0]).max() <= 6
    assert set(tree[:, 0]) <= {0, *tree[:, 1].tolist()}
    left_out: list[str] = []
    operations = papers_data.crdt(Path("nowhere"), 50, left_out)
    elements = {tuple(row) for row in operations["insert"][:, :2].tolist()} | {(0, 0)}
    assert {tuple(row) for row in operations["insert"][:, 2:].tolist()} <= elements
    assert {tuple(row) for row in operations["remove"].tolist()} <= elements
    assert len(left_out) == 1


def test_programs_with_an_aggregate_in_a_head() -> None:
    """Those are not for DRed."""
    names = [path.stem for path in papers_data.PROGRAMS.glob("*.dl")]
    found = {name for name in names if papers_data.folds(papers_data.program(name)[1])}
    assert found == {"apsp", "attend", "connected_components", "delivery", "pagerank", "sssp"}


def test_the_page_of_the_repository_is_whole() -> None:
    path = ROOT / "docs" / "papers.md"
    assert_plots(path)
    text = path.read_text()
    for module in PARTS.values():
        assert f"## {module.TITLE}\n" in text
