"""The library's programs over the public data sets, with the counts that independent systems compute.

Galen in full takes minutes and 8 GB; it runs when ZEDLOG_HEAVY=1 is set.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from engine.files.batch import FileRun
from engine.ontology.triples import Triple, read_triples
from tests.library.case import LibraryCase
from tests.oracle.rules import Row


def text_of(name: str) -> str:
    """The program, if this version can evaluate it."""
    case = LibraryCase(name)
    lacking = case.lacking()
    if lacking is not None:
        pytest.skip(f"programs/{name}.dl cannot be evaluated yet: {lacking}")
    return case.text


def sizes(text: str, folder: Path) -> dict[str, int]:
    """How many tuples each output has."""
    out = io.BytesIO()
    FileRun.of(text.replace(".output", ".printsize")).run(folder, folder, io.BytesIO(), out)
    return {
        name: int(size) for name, size in (line.split("\t") for line in out.getvalue().decode().splitlines())
    }


@pytest.mark.parametrize(
    ("file", "parameters", "expected"),
    [
        ("graph1000.txt", 'delimiter=" ", columns="0:1"', 11_532),
        ("graph10000.txt", 'delimiter=" ", columns="0:1"', 262_144),
        ("tree11.csv", 'delimiter=","', 805_001),
    ],
)
def test_transitive_closure(data: Path, file: str, parameters: str, expected: int) -> None:
    text = text_of("transitive_closure").replace(".input arc", f'.input arc(filename="{file}", {parameters})')
    text = text.replace(".output tc", ".printsize tc")
    assert sizes(text, data) == {"tc": expected}


def test_rho_df_on_lubm(data: Path) -> None:
    text = text_of("rho_df").replace('.output t(delimiter=" ")', ".printsize t")
    inputs = "".join(
        f'.input t(filename="{name}", delimiter=" ")\n' for name in ("lubm1abox.ntenc", "lubm1tbox.ntenc")
    )
    text = text.replace('.input t(delimiter=" ")\n', inputs)
    assert sizes(text, data) == {"t": 126_732}


def test_rho_df_specialised_on_lubm(data: Path, tmp_path: Path) -> None:
    """The same triples, taken apart by their words, come to the same closure: 126,732 with domains and ranges."""
    text = text_of("rho_df_specialised")
    rows = np.concatenate(
        [np.loadtxt(data / f"lubm1{box}.ntenc", dtype=np.int64) for box in ("abox", "tbox")]
    )
    rows = np.unique(rows, axis=0)
    names = ["SubClassOf", "SubPropertyOf", "Domain", "Range", "Type"]
    for code, name in enumerate(names):
        np.savetxt(tmp_path / f"{name}.facts", rows[rows[:, 1] == code][:, [0, 2]], fmt="%d", delimiter="\t")
    np.savetxt(tmp_path / "Property.facts", rows[rows[:, 1] > 4], fmt="%d", delimiter="\t")
    kept = int(np.isin(rows[:, 1], [2, 3]).sum())
    assert sum(sizes(text, tmp_path).values()) + kept == 126_732


@pytest.mark.parametrize(
    ("blank_nodes", "given", "expected"), [(True, 101_150, 127_022), (False, 101_067, 124_518)]
)
def test_rdfs_on_lubm(data: Path, tmp_path: Path, blank_nodes: bool, given: int, expected: int) -> None:
    def kept(triple: Triple) -> bool:
        return blank_nodes or not any("genid" in term for term in triple)

    triples = [triple for triple in dict.fromkeys(read_triples(data / "lubm1.nt.gz")) if kept(triple)]
    assert len(triples) == given
    write(tmp_path / "triple.facts", triples)
    assert sizes(text_of("rdfs"), tmp_path) == {"triple": expected}


def write(path: Path, rows: Iterable[Row]) -> None:
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))


def test_connected_components_and_shortest_paths_are_scipys(data: Path, tmp_path: Path) -> None:
    """On a random graph of 10,000 vertices; lengths are 1 to 7, so that fewer arcs are not always shorter."""
    csgraph = pytest.importorskip("scipy.sparse.csgraph")
    sparse = pytest.importorskip("scipy.sparse")
    components, paths = text_of("connected_components"), text_of("sssp")
    arcs = np.unique(np.loadtxt(data / "gnp10K.csv", delimiter=",", dtype=np.int64)[:, :2], axis=0)
    # Without most arcs there is more than one component.
    few = arcs[:: len(arcs) // 4_000]
    vertices = int(arcs.max()) + 1
    lengths = (arcs[:, 0] * 31 + arcs[:, 1] * 17) % 7 + 1

    np.savetxt(tmp_path / "arc.facts", few, fmt="%d", delimiter="\t")
    FileRun.of(components).run(tmp_path, tmp_path, io.BytesIO(), io.BytesIO())
    graph = sparse.csr_matrix((np.ones(len(few)), few.T), shape=(vertices, vertices))
    _, labels = csgraph.connected_components(graph, directed=False)
    smallest: dict[int, int] = {}
    for vertex, label in enumerate(labels.tolist()):
        smallest.setdefault(label, vertex)
    touched = np.unique(few)
    found = np.loadtxt(tmp_path / "cc.csv", dtype=np.int64)
    assert found.tolist() == [[v, smallest[labels[v]]] for v in touched.tolist()]
    assert len(set(found[:, 1].tolist())) > 10

    np.savetxt(tmp_path / "warc.facts", np.column_stack([arcs, lengths]), fmt="%d", delimiter="\t")
    write(tmp_path / "start.facts", [(int(arcs[0, 0]),)])
    FileRun.of(paths).run(tmp_path, tmp_path, io.BytesIO(), io.BytesIO())
    weighted = sparse.csr_matrix((lengths, arcs.T), shape=(vertices, vertices))
    distances = csgraph.dijkstra(weighted, indices=int(arcs[0, 0]))
    reached = np.flatnonzero(np.isfinite(distances))
    expected = np.column_stack([reached, distances[reached].astype(np.int64)])
    assert np.loadtxt(tmp_path / "sp.csv", dtype=np.int64).tolist() == expected.tolist()
    assert len(reached) > 9_000


def unpacked(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as file:
        for name in file.namelist():
            if not name.endswith("/"):
                (folder / Path(name).name).write_bytes(file.read(name))


def test_crdt_merge_of_all_operations(data: Path, tmp_path: Path) -> None:
    """182,315 insertions and 77,463 removals leave 104,852 visible elements: each but the last has a successor."""
    text = text_of("crdt")
    unpacked(data / "crdt.zip", tmp_path)
    inserts = np.loadtxt(tmp_path / "insert.txt", dtype=np.int64)
    removed = {tuple(row) for row in np.loadtxt(tmp_path / "remove.txt", dtype=np.int64).tolist()}
    order = [element for element in walk(inserts.tolist()) if element not in removed]
    FileRun.of(text).run(tmp_path, tmp_path, io.BytesIO(), io.BytesIO())
    found = np.loadtxt(tmp_path / "nextVisible.csv", dtype=np.int64)
    expected = sorted([*a, *b] for a, b in pairwise(order))
    assert found.tolist() == expected
    assert len(expected) == 104_851


def walk(inserts: list[list[int]]) -> list[tuple[int, int]]:
    """The list by its definition: the pre-order walk of the tree, siblings in descending order."""
    children: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for c, n, pc, pn in inserts:
        children[(pc, pn)].append((c, n))
    found: list[tuple[int, int]] = []
    stack = [(0, 0)]
    while stack:
        element = stack.pop()
        found.append(element)
        # The largest is taken first, so it goes on the stack last.
        stack += sorted(children[element])
    return found[1:]


@pytest.mark.skipif(
    os.environ.get("ZEDLOG_HEAVY") != "1", reason="takes minutes and 8 GB; set ZEDLOG_HEAVY=1"
)
@pytest.mark.timeout(3_600)
def test_galen_in_full(data: Path, tmp_path: Path) -> None:
    unpacked(data / "galen.zip", tmp_path)
    assert sizes(LibraryCase("galen").text, tmp_path) == {"p": 7_560_179, "q": 16_595_494}
