"""What sources assert is in a backup, and after a restore every source can take back exactly that."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.backup import form
from engine.backup.dumping import dump_program
from engine.backup.reading import opened
from engine.data.sources import sourced
from engine.data.transaction import FactChange, Transaction
from engine.database.epoch import EpochResult
from engine.errors import InvalidBackupError, InvalidRequestError, ZedlogError
from engine.storage.audits import Audit
from engine.storage.embedded import EmbeddedServer
from engine.storage.manifest import in_hex
from tests.backup.conftest import Home, home
from tests.backup.test_backup import fill, rewritten
from tests.waiting import until
from zedlog import Reasoner

HR, IT = "hr", "it, 2026"
EDGES = {
    HR: ([["a", "b"], ["b", "c"], ["tab\t", "ünï🙂"]], 2),
    IT: ([["b", "c"], ["tab\t", "ünï🙂"], ["x", "y"]], 3),
}
COSTS = {HR: ([["x", 0.1, -(2**63), True], ["z", -0.0, 5, False]], 3), IT: ([["z", -0.0, 5, False]], 2)}


def fill_with_sources(database: Home) -> None:
    """Two sources that assert overlapping facts, some of which are asserted without one, too."""
    fill(database)
    for relation, parts in (("edge", EDGES), ("cost", COSTS)):
        for source, (tuples, weight) in parts.items():
            database.apply(
                facts=[{"relation": relation, "tuples": tuples, "weight": weight}],
                source=source,
                message="sent",
            )
    database.apply(facts=[{"relation": "flag", "tuples": [[]], "weight": 2}], source=HR)
    # A fact that only contributes to a minimum.
    database.apply(facts=[{"relation": "dist", "tuples": [["c", 100], ["d", 1]]}], source=IT)
    # This source asserts nothing any more.
    database.apply(facts=[{"relation": "edge", "tuples": [["q", "q"]]}], source="gone")
    database.apply(source="gone", replaces="source")


def asserted(database: Home, source: str, relation: str) -> dict[tuple[Any, ...], int]:
    found: dict[tuple[Any, ...], int] = database.everything()["sources"][relation, source][1]
    return found


@pytest.fixture
def whole(origin: Home, tmp_path: Path) -> Path:
    fill_with_sources(origin)
    return origin.backup(tmp_path / "whole.zip")


def test_every_source_asserts_exactly_what_it_did(origin: Home, other: Home, whole: Path) -> None:
    before = origin.everything()
    assert set(before["sources"]) == {
        ("edge", HR),
        ("edge", IT),
        ("cost", HR),
        ("cost", IT),
        ("flag", HR),
        ("dist", IT),
    }
    assert before["relations"]["edge"][2]["b", "c"] == 1 + 2 + 3
    job = other.restore(whole)
    assert job.status == "succeeded", job.problem
    assert job.result is not None
    assert (job.result["compared"], job.result["differences"], job.result["sources"]) == (True, [], 2)
    assert job.result["epoch"] == 1
    after = other.everything()
    assert after == before
    assert after["sources"]["edge", HR][1] == {("a", "b"): 2, ("b", "c"): 2, ("tab\t", "ünï🙂"): 2}
    assert after["sources"]["cost", HR][1]["x", 0.1, -(2**63), True] == 3
    assert after["sources"]["dist", IT][1] == {("c", 100): 1, ("d", 1): 1}
    # The backup says the same digests, those of what sources assert included.
    told = {one.name: one.digest for one in opened(whole).manifest.collections}
    assert {name: digest for name, digest in told.items() if digest != in_hex(0)} == {
        name: digest for name, digest in after["digests"].items() if digest != in_hex(0)
    }
    assert sourced("edge", HR) in told
    assert sourced("edge", "gone") not in told
    # People see no other relations than before.
    assert set(after["relations"]) == set(before["relations"])


def test_the_restored_sources_go_on_as_the_original_ones(origin: Home, other: Home, whole: Path) -> None:
    assert other.restore(whole).status == "succeeded"
    bodies: list[dict[str, Any]] = [
        # What sources assert, nobody else takes away.
        {"facts": [{"relation": "edge", "tuples": [["x", "y"]], "weight": -1}]},
        # Nor do they take away more than they assert.
        {"facts": [{"relation": "edge", "tuples": [["a", "b"]], "weight": -3}], "source": HR},
        {"facts": [{"relation": sourced("edge", HR), "tuples": [["a", "b"]]}]},
        {"facts": [{"relation": sourced("edge", "new"), "tuples": [["a", "b"]]}], "source": HR},
        # A source is replaced: only the difference is a change.
        {"facts": [{"relation": "edge", "tuples": [["b", "c"], ["n", "n"]]}], "source": HR, "replaces": "source",
         "mode": "set"},
        {"source": IT, "replaces": "source"},
        {"facts": [{"relation": "edge", "tuples": [["b", "c"]], "weight": -1}]},
    ]  # fmt: skip
    for number, body in enumerate(bodies):
        outcomes = [database.db.apply(Transaction.parse(**body)) for database in (origin, other)]
        accepted = "committed" if number > 3 else "refused"
        assert [outcome.status for outcome in outcomes] == [accepted, accepted], outcomes
        assert outcomes[0].body.get("code") == outcomes[1].body.get("code")
        assert outcomes[0].body.get("changes") == outcomes[1].body.get("changes")
        assert other.everything() == origin.everything()
    assert asserted(other, HR, "edge") == {("b", "c"): 1, ("n", "n"): 1}
    assert {source for _, source in other.everything()["sources"]} == {HR}


def test_a_rollback_to_and_before_the_restore(origin: Home, other: Home, whole: Path) -> None:
    empty = other.everything()
    assert other.restore(whole).status == "succeeded"
    restored = other.everything()
    other.apply(source=HR, replaces="source")
    other.apply(facts=[{"relation": "edge", "tuples": [["new", "new"]], "weight": 4}], source=IT)
    other.apply(rollback=1)
    assert other.everything() == restored == origin.everything()
    # It is of the sources again: they can take it back, others cannot.
    retraction = [{"relation": "edge", "tuples": [["x", "y"]], "weight": -1}]
    assert other.db.apply(Transaction.parse(retraction)).body["code"] == "asserted_by_source"
    other.apply(facts=retraction, source=IT)
    assert asserted(other, IT, "edge")["x", "y"] == 2
    other.apply(rollback=0)
    assert other.everything() == empty


def test_audits_and_a_new_start_after_a_restore(
    server: EmbeddedServer, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hidden collections are compared as all others: in memory, in the snapshot, and after a start from it."""
    # On a busy machine a low priority means never.
    monkeypatch.setattr(os, "nice", lambda increment: 0)
    with home(server, tmp_path / "other") as first:
        assert first.restore(whole).status == "succeeded"
        restored = first.everything()
        first.db.run(first.db.client.audits.submit())
        full = audited(first, "full")
        assert full.report is not None
        assert (full.status, full.report["differences"], full.report["uncompared"]) == ("passed", [], [])
        assert full.report["relations"] >= len(restored["relations"]) + len(restored["sources"])
    with home(server, tmp_path / "other", name=first.name) as again:
        start = audited(again, "start")
        assert (start.status, start.why) == ("passed", None)
        assert again.everything() == restored
        again.apply(source=HR, replaces="source")
        again.apply(rollback=1)
        assert again.everything() == restored


def audited(database: Home, kind: str) -> Audit:
    """The first audit of a kind, when it has ended."""

    def look() -> Audit | None:
        for one in database.db.run(database.db.client.audits.list(9)):
            if one.kind == kind and one.finished is not None:
                return one
        return None

    return until(look, seconds=60)


def forged(whole: Path, path: Path, change: Callable[[dict[str, bytes], dict[str, Any]], None]) -> Path:
    """The backup with other members, and sizes and digests that agree with them."""

    def apply(members: dict[str, bytes]) -> None:
        manifest = json.loads(members[form.MANIFEST])
        change(members, manifest)
        for file in manifest["files"]:
            content = members[file["name"]]
            file.update(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
        members[form.MANIFEST] = json.dumps(manifest).encode()

    return rewritten(whole, path, apply)


def hidden(manifest: dict[str, Any], relation: str, source: str) -> dict[str, Any]:
    found: dict[str, Any] = next(
        one for one in manifest["relations"] if one["name"] == sourced(relation, source)
    )
    return found


def test_a_stranger_reads_what_a_source_asserts(whole: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(whole) as archive:
        archive.extractall(tmp_path / "out")
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    (one,) = [r for r in manifest["relations"] if (r.get("source"), r.get("relation")) == (HR, "edge")]
    assert one["hidden"] is True
    assert one["tuples"] == {"all": 3, "asserted": 3, "derived": 0}
    assert one["file"].startswith("sources/")
    rows = {tuple(row.values()) for row in pq.read_table(tmp_path / "out" / one["file"]).to_pylist()}
    assert rows == {("a", "b", 2), ("b", "c", 2), ("tab\t", "ünï🙂", 2)}


def test_a_backup_in_which_a_source_asserts_more_than_is_there_is_refused(
    whole: Path, other: Home, tmp_path: Path
) -> None:
    def heavier(members: dict[str, bytes], manifest: dict[str, Any]) -> None:
        """(b, c) has the weight 6, of which 3 are of the other source."""
        name = hidden(manifest, "edge", HR)["file"]
        table = pq.read_table(pa.BufferReader(members[name]))
        weights = [4 if row["x"] == "b" else row["weight"] for row in table.to_pylist()]
        sink = pa.BufferOutputStream()
        pq.write_table(table.set_column(2, "weight", pa.array(weights, pa.int64())), sink)
        members[name] = sink.getvalue().to_pybytes()

    job = other.restore(forged(whole, tmp_path / "heavier.zip", heavier))
    assert job.problem is not None
    assert job.problem["code"] == "backup_invalid"
    assert (job.problem["relation"], job.problem["source"]) in (("edge", HR), ("edge", IT))
    assert job.problem["tuples"] == [["b", "c"]]
    assert 'edge("b", "c")' in job.problem["message"]
    empty: dict[str, Any] = {"rules": {}, "declarations": "", "relations": {}, "sources": {}, "digests": {}}
    assert other.everything() == empty


def test_forged_names_of_sources_are_refused(whole: Path, other: Home, tmp_path: Path) -> None:
    def named(name: str, **more: Any) -> Callable[[dict[str, bytes], dict[str, Any]], None]:
        return lambda members, manifest: hidden(manifest, "edge", HR).update(name=name, **more)

    cases = [
        (named(sourced("nothing", HR)), "nothing"),
        # Its columns are others.
        (named(sourced("loose", HR)), "loose"),
        (named(sourced("edge", "a/b")), "slash"),
        (named(sourced("edge", HR) + "x"), "parenthesis"),
        (named(sourced("edge", HR)[:-1]), "not the name"),
        (named("edgy"), "edgy"),
        (named(sourced("edge", HR), hidden=False), "hidden"),
    ]
    for number, (change, word) in enumerate(cases):
        job = other.restore(forged(whole, tmp_path / f"{number}.zip", change))
        assert job.problem is not None, word
        assert (job.problem["code"], job.problem["member"]) == ("backup_invalid", "manifest.json"), word
        assert word in job.problem["message"]
    assert other.everything()["relations"] == {}


def test_only_a_restore_names_what_a_source_asserts() -> None:
    one = np.ones(1, np.int64)
    claim = FactChange(sourced("p", HR), [("a",)], one)
    fact = FactChange("p", [("a",)], one)
    refused: list[tuple[Transaction, type[ZedlogError]]] = [
        (Transaction((claim,)), InvalidRequestError),
        (Transaction((fact, claim)), InvalidRequestError),
        (Transaction((fact, claim), source=HR), InvalidRequestError),
        (Transaction((fact, claim), mode="set"), InvalidRequestError),
        # In a restore, the relation must have what the source asserts.
        (Transaction((claim,), onto_empty=True), InvalidBackupError),
        (Transaction((fact, claim, claim), onto_empty=True), InvalidBackupError),
        (
            Transaction((fact, claim, replace(claim, relation=sourced("p", IT))), onto_empty=True),
            InvalidBackupError,
        ),
        (Transaction((FactChange("p", [(1,)], one), claim), onto_empty=True), InvalidBackupError),
    ]
    for transaction, error in refused:
        reasoner = Reasoner()
        (outcome,) = reasoner.commit([transaction]).outcomes
        assert isinstance(outcome, error), transaction
        assert reasoner.relations() == {}
    reasoner = Reasoner()
    twice = replace(fact, weight=2 * one)
    (outcome,) = reasoner.commit([Transaction((claim, twice), onto_empty=True)]).outcomes
    assert isinstance(outcome, EpochResult)
    assert list(outcome.changes) == ["p"]
    assert reasoner.asserted_by(HR, "p") == {("a",): 1}
    # No client can say that it is one: the word is not in what clients send.
    with pytest.raises(TypeError):
        Transaction.parse(onto_empty=True)  # type: ignore[call-arg]


def test_a_difference_in_what_a_source_asserts_is_told(whole: Path, other: Home, tmp_path: Path) -> None:
    def lying(members: dict[str, bytes], manifest: dict[str, Any]) -> None:
        hidden(manifest, "edge", HR)["digest"] = "0" * 32

    job = other.restore(forged(whole, tmp_path / "lying.zip", lying))
    assert job.result is not None
    (difference,) = job.result["differences"]
    assert (difference["relation"], difference["source"]) == ("edge", HR)
    assert difference["digests"][0] == "0" * 32


def test_a_dump_says_that_sources_are_not_expressed(origin: Home, tmp_path: Path) -> None:
    origin.apply(facts=[{"relation": "p", "tuples": [["a"]]}], source=HR)
    remarks = dump_program(opened(origin.backup(tmp_path / "b.zip")), tmp_path / "all.dl")
    assert len(remarks) == 1
    assert "which sources assert which facts is not expressed" in remarks[0]
    assert 'p("a").' in (tmp_path / "all.dl").read_text()
    assert HR not in (tmp_path / "all.dl").read_text().split("\n\n", 1)[1]
    origin.apply(source=HR, replaces="source")
    assert dump_program(opened(origin.backup(tmp_path / "c.zip")), tmp_path / "none.dl") == []
