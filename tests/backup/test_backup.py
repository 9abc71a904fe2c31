"""A backup and its restore: what is in it, that nothing is lost, and that what is wrong is refused by name."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import struct
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from engine.backup import form
from engine.backup.reading import END, opened
from engine.backup.writing import backup
from engine.data.transaction import Transaction
from engine.errors import EpochNotRetainedError, InvalidBackupError, NewerBackupError, ZedlogError
from engine.server.settings import EngineOptions
from engine.storage.client import DatabaseClient
from engine.storage.embedded import EmbeddedServer
from engine.storage.retention import Retention
from tests.backup.conftest import Home, home

DECLARATIONS = """.decl edge(x: symbol, y: symbol)
.decl cost(item: symbol, price: float, weight: number, sold: bool)
.decl best(item: symbol, n: number)
.decl flag()
.decl never(x: symbol) constraint
"""
RULES = [
    {"rule": "tc(x, y) :- edge(x, y).", "weight": 1},
    {"rule": "tc(x, z) :- tc(x, y), edge(y, z).", "weight": 3},
    {"rule": "dear(i) :- cost(i, p, _, true), p > 1.5.", "weight": 1},
    {"rule": "best(i, min n : { cost(i, _, n, _) }) :- cost(i, _, _, _).", "weight": 1},
    {"rule": "alone(x) :- edge(x, _), !tc(x, x); tc(x, x), edge(x, x).", "weight": 2},
    {"rule": "dist(y, min(d + w)) :- dist(x, d), way(x, y, w).", "weight": 1},
]
STRANGE = ['tab\there, "quoted"', "line\nbreak\r", "", "ünï🙂", "\ufeffmark", "a,b", " space "]


def fill(database: Home) -> None:
    database.apply(declarations=DECLARATIONS, rules=RULES)
    database.apply(
        facts=[
            {
                "relation": "edge",
                "tuples": [["a", "b"], ["b", "c"], ["c", "c"], *[[s, "a"] for s in STRANGE]],
            },
            {"relation": "edge", "tuples": [["a", "b"]], "weight": 2**40},
            {"relation": "cost", "tuples": [["x", 0.1, -(2**63), True], ["y", 1e300, 2**63 - 1, True]]},
            {"relation": "cost", "tuples": [["x", -0.0, 7, False], ["x", 2.5, 5, True]], "weight": 2},
            {"relation": "flag", "tuples": [[]]},
            {"relation": "loose", "tuples": [[i, i * i] for i in range(1000)]},
            {"relation": "derivedtoo", "tuples": [["a"]]},
            {"relation": "way", "tuples": [["a", "b", 3], ["b", "c", 4], ["a", "c", 9]]},
            # The second only contributes to the minimum: it is a fact, but its tuple is not there.
            {"relation": "dist", "tuples": [["a", 0], ["c", 100]]},
        ],
        rules=[{"rule": "derivedtoo(x) :- edge(x, _)."}],
    )
    database.apply(facts=[{"relation": "edge", "tuples": [["c", "c"]], "weight": -1}])


def test_everything_comes_back(origin: Home, other: Home, tmp_path: Path) -> None:
    fill(origin)
    job = other.restore(origin.backup(tmp_path / "b.zip"))
    assert job.status == "succeeded", job.problem
    assert job.result is not None
    assert (job.result["compared"], job.result["differences"]) == (True, [])
    assert job.result["epoch"] == 1
    before, after = origin.everything(), other.everything()
    assert before["relations"]["edge"][1]["a", "b"] == (2**40 + 1, False)
    assert before["relations"]["tc"][1]["a", "c"] == (0, True)
    assert before["relations"]["dist"][1].keys() == {("a", 0), ("b", 3), ("c", 7)}
    assert before["relations"]["dist"][2] == {("a", 0): 1, ("c", 100): 1}
    assert after == before
    # It goes on as the original would.
    for database in (origin, other):
        database.apply(facts=[{"relation": "edge", "tuples": [["c", "a"]]}])
    assert other.everything() == origin.everything()


def test_it_can_be_read_without_us(origin: Home, tmp_path: Path) -> None:
    fill(origin)
    path = origin.backup(tmp_path / "b.zip")
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        archive.extractall(tmp_path / "out")
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert manifest["product"] == "zedlog"
    assert manifest["epoch"] == 3
    tuples = {one["name"]: one["tuples"] for one in manifest["relations"]}
    assert tuples["best"] == {"all": 2, "asserted": 0, "derived": 2}
    for file in manifest["files"]:
        data = (tmp_path / "out" / file["name"]).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file["bytes"], file["sha256"])
    table = pq.read_table(tmp_path / "out/facts/cost.parquet")
    assert table.column_names == ["item", "price", "_weight", "sold", "weight"] or table.column_names == [
        "item",
        "price",
        "weight",
        "sold",
        "_weight",
    ]
    rows = {tuple(row.values()) for row in table.to_pylist()}
    assert ("x", 2.5, 5, True, 2) in rows
    assert len(rows) == 4
    rules = json.loads((tmp_path / "out/rules.json").read_text())
    assert {rule["text"]: rule["weight"] for rule in rules}["tc(x, z) :- tc(x, y), edge(y, z)."] == 3
    assert "tc(x, z) :- tc(x, y), edge(y, z)." in (tmp_path / "out/program.dl").read_text()
    assert "pandas.read_parquet" in (tmp_path / "out/README.txt").read_text()


def test_an_empty_database(origin: Home, other: Home, tmp_path: Path) -> None:
    path = origin.backup(tmp_path / "b.zip")
    assert other.restore(path).status == "succeeded"
    empty: dict[str, Any] = {"rules": {}, "declarations": "", "relations": {}, "sources": {}, "digests": {}}
    assert other.everything() == empty


def test_only_into_an_empty_database(origin: Home, server: EmbeddedServer, tmp_path: Path) -> None:
    fill(origin)
    path = origin.backup(tmp_path / "b.zip")
    changes: list[dict[str, Any]] = [
        {"facts": [{"relation": "p", "tuples": [["a"]]}]},
        {"rules": [{"rule": "p(x) :- q(x)."}]},
        {"declarations": ".decl p(x: symbol)"},
    ]
    for number, change in enumerate(changes):
        with home(server, tmp_path / f"other{number}") as other:
            other.apply(**change)
            before = other.everything()
            job = other.restore(path)
            assert job.problem is not None
            assert job.problem["code"] == "database_not_empty"
            assert other.everything() == before
            # What it wrote and what was sent are gone.
            assert [p for p in (other.folder / other.name).rglob("*") if p.is_file()] == []


def test_weights_of_a_database_that_was_emptied_do_not_count(
    origin: Home, other: Home, tmp_path: Path
) -> None:
    fill(origin)
    other.apply(facts=[{"relation": "p", "tuples": [["a"]]}], rules=[{"rule": "q(x) :- p(x)."}])
    other.apply(
        facts=[{"relation": "p", "tuples": [["a"]], "weight": -1}],
        rules=[{"rule": "q(x) :- p(x).", "weight": -1}],
    )
    assert other.restore(origin.backup(tmp_path / "b.zip")).status == "succeeded"
    assert other.everything() == origin.everything()


def test_an_epoch_is_held_beyond_its_retention(server: EmbeddedServer, tmp_path: Path) -> None:
    """A backup that takes long beside quick writers reads the epoch that it began with, to its end."""
    options = EngineOptions(lease_seconds=1, retention=Retention(epochs=2, seconds=0.6))
    with home(server, tmp_path / "origin", options) as origin, home(server, tmp_path / "other") as other:
        rows = [[i, i % 7] for i in range(3000)]
        origin.apply(facts=[{"relation": "e", "tuples": rows}], rules=[{"rule": "s(y) :- e(_, y)."}])
        before = origin.everything()
        path = tmp_path / "b.zip"

        async def slowly() -> None:
            client = origin.db.client
            snapshot = await client.snapshot()
            async with client.hold(snapshot.epoch):
                for i in range(20):
                    tx = Transaction.parse(
                        [{"relation": "e", "tuples": rows[i * 100 : i * 100 + 100], "weight": 5}]
                    )
                    receipt = await client.append(tx)
                    assert await client.wait_outcome(receipt.transaction_id, 20)
                    await asyncio.sleep(0.1)
                # Nothing of it is in this client's caches.
                fresh = DatabaseClient.connect(server.url, origin.name)
                with path.open("wb") as file:
                    async for portion in backup(await fresh.snapshot(snapshot.epoch), origin.name):
                        file.write(portion)
                await fresh.close()
            await asyncio.sleep(0.6)
            for _ in range(3):
                receipt = await client.append(Transaction.parse([{"relation": "f", "tuples": [[1]]}]))
                assert await client.wait_outcome(receipt.transaction_id, 20)
            with pytest.raises(ZedlogError, match="no longer kept"):
                await client.snapshot(snapshot.epoch)

        origin.db.run(slowly())
        assert opened(path).manifest.epoch == 1
        assert other.restore(path).status == "succeeded"
        assert other.everything() == before


def test_what_a_hold_kept_goes_in_portions(
    server: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.storage.publisher._MOST_REMOVED", 3)
    with home(server, tmp_path / "home", EngineOptions(retention=Retention(epochs=1, seconds=0))) as database:

        def kept() -> list[int]:
            epochs = []
            for epoch in range(30):
                with suppress(EpochNotRetainedError):
                    epochs.append(database.db.run(database.db.client.snapshot(epoch)).epoch)
            return epochs

        def write() -> None:
            database.apply(facts=[{"relation": "e", "tuples": [[1]]}])

        write()
        assert kept() == [1]
        with held(database, 1):
            for _ in range(9):
                write()
            assert kept() == list(range(1, 11))
        time.sleep(1)
        assert kept() == list(range(1, 11))
        write()
        assert kept() == list(range(4, 12))
        write()
        assert kept() == list(range(7, 13))
        for _ in range(3):
            write()
        assert kept() == [15]


@contextmanager
def held(database: Home, epoch: int) -> Iterator[None]:
    hold = database.db.client.hold(epoch)
    database.db.run(hold.__aenter__())  # type: ignore[arg-type]
    # Until the engine's heartbeat has seen it.
    time.sleep(1)
    try:
        yield
    finally:
        database.db.run(hold.__aexit__(None, None, None))  # type: ignore[arg-type]


# ---- what is refused


@pytest.fixture
def whole(origin: Home, tmp_path: Path) -> Path:
    fill(origin)
    return origin.backup(tmp_path / "whole.zip")


def refused(path: Path) -> InvalidBackupError:
    with pytest.raises(InvalidBackupError) as caught:
        opened(path)
    return caught.value


def test_every_damaged_byte_is_found_and_its_member_named(whole: Path, other: Home, tmp_path: Path) -> None:
    data = whole.read_bytes()
    places = {}
    for name, (start, size) in opened(whole).places.items():
        places.update(dict.fromkeys(range(start, start + size), name))
    with zipfile.ZipFile(whole) as archive:
        entry = archive.getinfo(form.MANIFEST)
        start = (
            entry.header_offset
            + 30
            + len(form.MANIFEST)
            + struct.unpack_from("<H", data, entry.header_offset + 28)[0]
        )
        places.update(dict.fromkeys(range(start, start + entry.file_size), form.MANIFEST))
    chosen = random.Random(17)
    # Every byte outside of the members' contents, and some of each member.
    positions = [i for i in range(len(data)) if i not in places]
    for name in {*places.values()}:
        positions += chosen.sample([i for i, n in places.items() if n == name], 12)
    path = tmp_path / "damaged.zip"
    for position in positions:
        changed = bytearray(data)
        changed[position] ^= 1 << chosen.randrange(8)
        path.write_bytes(changed)
        error = refused(path)
        member = places.get(position)
        if member is not None:
            assert error.detail["member"] == member, (position, str(error))
    assert len(positions) > 1000
    # The last one, through the engine.
    job = other.restore(path)
    assert job.problem is not None
    assert job.problem["code"] == "backup_invalid"
    assert other.everything()["relations"] == {}


def test_truncated(whole: Path, tmp_path: Path) -> None:
    data = whole.read_bytes()
    path = tmp_path / "cut.zip"
    for length in (len(data) - 1, len(data) - form.COMMENT_BYTES, len(data) - 200, len(data) // 2, 100, 5):
        path.write_bytes(data[:length])
        assert refused(path).detail["member"]
    path.write_bytes(b"")
    refused(path)
    path.write_bytes(data + b"\0")
    assert refused(path).detail["member"] == END


def test_foreign_files(tmp_path: Path) -> None:
    path = tmp_path / "foreign.zip"
    path.write_bytes(b"edge\ta\tb\n" * 100)
    assert "not a backup" in str(refused(path))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("word/document.xml", "<a/>")
    assert "not a backup" in str(refused(path))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", '{"format": 1}')
    assert "not a backup" in str(refused(path))
    with pytest.raises(InvalidBackupError, match="No such file"):
        opened(tmp_path / "none.zip")


def rewritten(whole: Path, path: Path, change: Callable[[dict[str, bytes]], None], **how: Any) -> Path:
    """The backup with other members, and a digest at its end that is right: as somebody would forge it."""
    with zipfile.ZipFile(whole) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w", how.get("compression", zipfile.ZIP_STORED)) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.comment = form.comment("0" * 64)
    body = path.read_bytes()[: -form.COMMENT_BYTES]
    path.write_bytes(body + form.comment(hashlib.sha256(body).hexdigest()))
    return path


def test_forged_files(whole: Path, tmp_path: Path) -> None:
    def manifest(change: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, bytes]], None]:
        def apply(members: dict[str, bytes]) -> None:
            body = json.loads(members["manifest.json"])
            change(body)
            members["manifest.json"] = json.dumps(body).encode()

        return apply

    path = tmp_path / "forged.zip"
    assert opened(rewritten(whole, path, lambda members: None)).manifest.rules == 8
    cases: list[tuple[Callable[[dict[str, bytes]], Any], str]] = [
        (lambda m: m.update({"../../etc/passwd": b"x"}), "../../etc/passwd"),
        (lambda m: m.update({"facts/../../x.parquet": b"x"}), "facts/../../x.parquet"),
        (lambda m: m.update({"/x.parquet": b"x"}), "/x.parquet"),
        (lambda m: m.update({"facts/more.parquet": b"x"}), "facts/more.parquet"),
        (lambda m: m.pop("facts/edge.parquet"), "facts/edge.parquet"),
        (lambda m: m.pop("rules.json"), "rules.json"),
        (lambda m: m.pop("manifest.json"), "manifest.json"),
        (lambda m: m.update({"rules.json": b"[]"}), "rules.json"),
        (lambda m: m.update({"manifest.json": b"{"}), "manifest.json"),
        (manifest(lambda b: b.update(format="1")), "manifest.json"),
        (manifest(lambda b: b.pop("relations")), "manifest.json"),
    ]
    for change, member in cases:
        assert refused(rewritten(whole, path, change)).detail["member"] == member
    bomb = rewritten(
        whole, path, lambda m: m.update({"README.txt": bytes(10_000_000)}), compression=zipfile.ZIP_DEFLATED
    )
    assert bomb.stat().st_size < 1_000_000
    assert "compressed" in str(refused(bomb))
    with pytest.raises(NewerBackupError, match="later"):
        opened(rewritten(whole, path, manifest(lambda b: b.update(format=form.FORMAT + 1, version="99"))))


def test_a_file_of_facts_that_is_not_what_the_manifest_says(whole: Path, other: Home, tmp_path: Path) -> None:
    def swapped(members: dict[str, bytes]) -> None:
        """`edge` with the facts of `cost`, and a manifest that agrees with the files."""
        members["facts/edge.parquet"] = members["facts/cost.parquet"]
        body = json.loads(members["manifest.json"])
        files = {file["name"]: file for file in body["files"]}
        files["facts/edge.parquet"].update(
            {k: files["facts/cost.parquet"][k] for k in ("bytes", "sha256", "rows")}
        )
        members["manifest.json"] = json.dumps(body).encode()

    job = other.restore(rewritten(whole, tmp_path / "forged.zip", swapped))
    assert job.problem is not None
    assert (job.problem["code"], job.problem["member"]) == ("backup_invalid", "facts/edge.parquet")
    assert other.everything()["relations"] == {}
    assert [p for p in (other.folder / other.name).rglob("*") if p.is_file()] == []


def test_what_differs_is_told(whole: Path, other: Home, tmp_path: Path) -> None:
    """A backup that claims other derived tuples than follow: restored, and the difference is named."""

    def lying(members: dict[str, bytes]) -> None:
        body = json.loads(members["manifest.json"])
        next(one for one in body["relations"] if one["name"] == "tc")["tuples"]["derived"] += 1
        members["manifest.json"] = json.dumps(body).encode()

    job = other.restore(rewritten(whole, tmp_path / "lying.zip", lying))
    assert job.result is not None
    assert [one["relation"] for one in job.result["differences"]] == ["tc"]
    assert (
        job.result["differences"][0]["backup"]["derived"]
        == job.result["differences"][0]["now"]["derived"] + 1
    )
