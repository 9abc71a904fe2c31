"""An engine that keeps checkpoints: how its state comes back, and what it says of a checkpoint that it does not use."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis

from engine.data.transaction import RuleChange, Transaction
from engine.database.checkpoint import Checkpoint
from engine.database.writer import Writer
from engine.resident import checkpoint as resident
from engine.server import checkpoints as module
from engine.server.checkpoints import Checkpoints, When
from engine.server.loop import restore_reasoner
from engine.server.settings import EngineSettings
from engine.storage.embedded import EmbeddedServer
from engine.storage.keys import Keys
from tests.process.keeping import ALWAYS
from tests.process.running import Database, EngineThread, facts
from tests.process.test_process import ROOT, first_line
from tests.waiting import until
from zedlog import Reasoner

CLOSURE = Transaction(
    rules=(
        RuleChange("tc(x, y) :- edge(x, y)."),
        RuleChange("tc(x, z) :- tc(x, y), edge(y, z)."),
    )
)
Damage = Callable[[Path, redis.Redis, Keys], None]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(module, "_SHARE_OF_TIME", 0)
    # On a busy machine a moment may be long, and a low priority means never.
    monkeypatch.setattr(os, "nice", lambda increment: 0)
    monkeypatch.setattr(module, "_STOP_SECONDS", 60.0)


@contextmanager
def engine(server: EmbeddedServer, database: str, folder: Path, when: When = ALWAYS) -> Iterator[Checkpoints]:
    kept = Checkpoints(folder, database, when)
    factory = partial(restore_reasoner, checkpoints=kept)
    with EngineThread(server.url, database, factory=factory, checkpoints=kept) as thread:
        yield kept
    if thread.failure is not None:
        raise thread.failure


def edges(*pairs: tuple[str, str], weight: int = 1) -> Transaction:
    return facts("edge", *pairs, weight=weight)


def recovered(db: Database) -> str | None:
    return db.run(db.client.status()).recovered


def closure(pairs: set[tuple[Any, ...]]) -> set[tuple[Any, ...]]:
    reached = set(pairs)
    while True:
        more = {(x, z) for x, y in reached for w, z in pairs if y == w} - reached
        if not more:
            return reached
        reached |= more


def check(db: Database) -> None:
    """The closure is the one of the edges."""
    assert set(db.facts("tc")) == closure(set(db.facts("edge")))


def written(kept: Checkpoints, epoch: int) -> bool:
    return kept._kept == epoch


def test_replay_a_restart_goes_on_from_the_checkpoint(
    server: EmbeddedServer, database: str, tmp_path: Path
) -> None:
    with Database(server.url, database) as db:
        with engine(server, database, tmp_path) as kept:
            assert recovered(db) == "derived anew, because there is no checkpoint"
            db.apply(CLOSURE)
            db.apply(edges(("a", "b"), ("b", "c"), ("c", "a"), ("x", "y")))
            until(lambda: written(kept, 2))
        for number in range(3):
            with engine(server, database, tmp_path, When()) as kept:
                # The state is so small that it is not written again within the minute; at the end it is.
                expected = f"from the checkpoint of epoch {2 + 2 * number}"
                assert recovered(db) == expected
                db.apply(edges(("c", f"new {number}")))
                db.apply(edges(("b", "c"), weight=number % 2 * 2 - 1))
                check(db)
        with engine(server, database, tmp_path, When()):
            assert recovered(db) == "from the checkpoint of epoch 8"
            check(db)


def test_replay_from_an_older_checkpoint(server: EmbeddedServer, database: str, tmp_path: Path) -> None:
    """Epochs that the checkpoint does not have: facts that came and went, other rules, another type of a column."""
    folder, older = tmp_path / "kept", tmp_path / "older"
    with Database(server.url, database) as db:
        with engine(server, database, folder):
            db.apply(CLOSURE)
            db.apply(edges(("a", "b"), ("b", "c"), ("c", "a")))
            db.apply(facts("n", (1,), (2,)))
        shutil.copytree(folder, older)
        changes = [
            edges(("a", "b"), weight=-1),
            edges(("c", "d"), ("b", "e")),
            Transaction(rules=(RuleChange("loop(x) :- tc(x, x)."), RuleChange("n2(x) :- n(x)."))),
            facts("n", (1,), (2,), weight=-1),
            facts("n", ("now", 2), ("a", 3)),
            Transaction(rules=(RuleChange("tc(x, z) :- tc(x, y), edge(y, z).", -1),)),
        ]
        for epoch, change in enumerate(changes, start=4):
            with engine(server, database, folder):
                outcome = db.apply(change)
                assert outcome.status == ("committed" if epoch != 8 else "refused"), outcome.body
                expected = {name: db.facts(name) for name in ("edge", "tc", "loop", "n", "n2")}
            shutil.rmtree(folder)
            shutil.copytree(older, folder)
            with engine(server, database, folder) as kept:
                newest = db.run(db.client.status()).epoch
                # Without another epoch: the difference need not be evaluated again.
                until(partial(written, kept, newest))
                assert recovered(db) == f"from the checkpoint of epoch 3, brought to epoch {newest}"
                assert {name: db.facts(name) for name in expected} == expected
                probe = facts("edge", ("probe", "probe"), dry_run=True)
                assert db.apply(probe).body["changes"]["edge"] == {"inserted": 1, "deleted": 0}
            shutil.rmtree(folder)
            shutil.copytree(older, folder)


def flip(path: Path, client: redis.Redis, keys: Keys) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path, client: redis.Redis, keys: Keys) -> None:
    os.truncate(path, path.stat().st_size // 2)


def remove(path: Path, client: redis.Redis, keys: Keys) -> None:
    path.unlink()


def wipe(path: Path, client: redis.Redis, keys: Keys) -> None:
    """The database in Redis is another one now, and has fewer epochs."""
    names = list(client.scan_iter(f"{keys.head.removesuffix('head')}*"))
    client.delete(*names)


def end_twice(path: Path, client: redis.Redis, keys: Keys) -> None:
    """Two processes in a row ended while they took it up."""
    path.with_suffix(".trying").write_text("2")


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (flip, "the checkpoint is not used: it is damaged: "),
        (cut, "the checkpoint is not used: it is damaged: it does not end as a checkpoint does"),
        (remove, "there is no checkpoint"),
        (wipe, "the checkpoint is not used: it belongs to another database"),
        (end_twice, "the checkpoint is not used: the engine's process ended 2 times while it took it up"),
    ],
)
def test_what_does_not_fit_is_reported_and_not_used(
    server: EmbeddedServer,
    client: redis.Redis,
    database: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    damage: Damage,
    why: str,
) -> None:
    with Database(server.url, database) as db:
        with engine(server, database, tmp_path):
            db.apply(Transaction(rules=CLOSURE.rules, declarations=".decl edge(x: symbol, y: symbol)"))
            db.apply(edges(("a", "b"), ("b", "c")))
        damage(tmp_path / f"{database}.checkpoint", client, Keys(database))
        with caplog.at_level(logging.INFO, "zedlog.engine"), engine(server, database, tmp_path):
            said = recovered(db)
            assert said is not None
            assert said.startswith(f"derived anew, because {why}")
            assert any(why in text for text in caplog.messages)
            db.apply(CLOSURE)
            db.apply(edges(("b", "a"), ("c", "d")))
            check(db)
        with engine(server, database, tmp_path):
            assert "from the checkpoint of epoch" in str(recovered(db))
            check(db)


def test_a_restored_backup_has_another_history(
    server: EmbeddedServer, client: redis.Redis, database: str, tmp_path: Path
) -> None:
    """The checkpoint is newer than the head at first; later it is older, but of epochs that do not exist any more."""
    path, other = tmp_path / f"{database}.checkpoint", tmp_path / "other"
    with Database(server.url, database) as db:
        with engine(server, database, tmp_path):
            db.apply(CLOSURE)
            db.apply(facts("edge", (1, 2), (2, 3)))
        names = list(client.scan_iter(f"zedlog:{{{database}}}:*"))
        backup = {name: client.dump(name) for name in names if not name.endswith((b":lease", b":generation"))}
        with engine(server, database, tmp_path):
            db.apply(facts("edge", (3, 4), (4, 1)))
            db.apply(Transaction(rules=(RuleChange("loop(x) :- tc(x, x)."),)))
        shutil.copy(path, other)
        client.delete(*(name for name in names if name in backup))
        for name, data in backup.items():
            assert data is not None
            client.restore(name, 0, data, replace=True)
        with engine(server, database, tmp_path):
            expected = "it is of epoch 4, but the newest published epoch is 2"
            assert recovered(db) == f"derived anew, because the checkpoint is not used: {expected}"
            check(db)
            for pairs in (((3, 5),), ((5, 6), (1, 5)), ((2, 7),)):
                db.apply(facts("edge", *pairs))
        shutil.copy(other, path)
        with engine(server, database, tmp_path):
            assert recovered(db) == "from the checkpoint of epoch 4, brought to epoch 5"
            check(db)
            assert db.facts("loop") == {}
            db.apply(facts("edge", (2, 3), weight=-1))
            check(db)


def of_other_layout(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(resident, "VERSION", -1)
    resident.layout.cache_clear()
    return "the checkpoint is not used: it was written by another version of Zedlog"


def of_other_circuit(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("engine.database.checkpoint._circuit_digest", lambda circuit: "another")
    return "the checkpoint is not used: this version of Zedlog makes another circuit of its rules"


def of_other_symbols(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("engine.database.checkpoint._symbols_digest", lambda symbols: (0, ""))
    return "the checkpoint is not used: symbols that it has were forgotten since, or are other ones"


def with_a_fault(monkeypatch: pytest.MonkeyPatch) -> str:
    def resume(self: Writer, checkpoint: Checkpoint, state: object) -> None:
        raise IndexError("a bug")

    monkeypatch.setattr(Writer, "resume", resume)
    return "taking up the checkpoint failed: IndexError('a bug')"


@pytest.mark.parametrize("spoil", [of_other_layout, of_other_circuit, of_other_symbols, with_a_fault])
def test_what_another_version_wrote_is_not_used(
    server: EmbeddedServer,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[pytest.MonkeyPatch], str],
) -> None:
    with Database(server.url, database) as db:
        with engine(server, database, tmp_path):
            db.apply(CLOSURE)
            db.apply(edges(("a", "b"), ("b", "c")))
        with monkeypatch.context() as patch:
            why = spoil(patch)
            with engine(server, database, tmp_path, When(least=1e9)):
                assert recovered(db) == f"derived anew, because {why}"
                check(db)
        resident.layout.cache_clear()


def test_counts_that_differ_from_the_snapshot_are_noticed(
    server: EmbeddedServer, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fact that the comparison does not see."""
    with Database(server.url, database) as db:
        with engine(server, database, tmp_path):
            db.apply(CLOSURE)
            db.apply(edges(("a", "b"), ("b", "c")))
        shutil.copy(tmp_path / f"{database}.checkpoint", tmp_path / "older")
        with engine(server, database, tmp_path):
            db.apply(edges(("c", "d")))
        shutil.copy(tmp_path / "older", tmp_path / f"{database}.checkpoint")
        monkeypatch.setattr("engine.database.writer.fact_changes", lambda *_: {})
        with engine(server, database, tmp_path):
            said = str(recovered(db))
            assert said.startswith("derived anew, because the checkpoint is not used: ")
            assert "but the snapshot has" in said
            check(db)


def test_a_folder_that_cannot_be_looked_into_does_not_stop_the_engine(
    server: EmbeddedServer, database: str, tmp_path: Path
) -> None:
    """Not even the superuser, as whom tests may run, can look into a file, or at a name that is too long."""
    file = tmp_path / "file"
    file.touch()
    with Database(server.url, database) as db:
        for folder, why in (
            (file / "below", "Not a directory"),
            (tmp_path / ("x" * 300), "File name too long"),
        ):
            with engine(server, database, folder):
                expected = f"it cannot be read: {why}"
                assert recovered(db) == f"derived anew, because the checkpoint is not used: {expected}"
                db.apply(edges(("a", "b")))
        assert db.facts("edge") == {("a", "b"): 2}


def test_a_folder_that_cannot_be_written_is_reported_once(
    server: EmbeddedServer, database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "kept"
    folder.write_text("not a folder")
    with Database(server.url, database) as db, engine(server, database, folder):
        for i in range(5):
            db.apply(edges((f"{i}", f"{i + 1}")))
        assert len(db.facts("edge")) == 5
    said = [text for text in caplog.messages if "the checkpoint cannot be written: " in text]
    assert len(said) == 1
    assert "the engine goes on without a new one" in said[0]


def test_a_full_disk_is_reported_once_and_the_earlier_checkpoint_stays(
    server: EmbeddedServer,
    database: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    with Database(server.url, database) as db:
        with engine(server, database, tmp_path):
            db.apply(edges(("a", "b")))
        with monkeypatch.context() as patch:
            patch.setattr(module, "write_checkpoint", full)
            with engine(server, database, tmp_path):
                for i in range(5):
                    db.apply(edges((f"{i}", f"{i + 1}")))
        said = [text for text in caplog.messages if "No space left on device" in text]
        assert len(said) == 1
        with engine(server, database, tmp_path):
            assert recovered(db) == "from the checkpoint of epoch 1, brought to epoch 6"
            assert len(db.facts("edge")) == 6


def test_a_small_state_is_not_written(server: EmbeddedServer, database: str, tmp_path: Path) -> None:
    with Database(server.url, database) as db, engine(server, database, tmp_path, When()):
        db.apply(CLOSURE)
        db.apply(edges(("a", "b")))
    assert list(tmp_path.iterdir()) == []


def test_faults_kill_9_at_any_moment(server: EmbeddedServer, database: str, tmp_path: Path) -> None:
    """A checkpoint is written after every epoch, and the process is killed after every few writes."""

    def start() -> subprocess.Popen[str]:
        options = ["--redis-url", server.url, "--database", database, "--checkpoint-dir", str(tmp_path)]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.process.keeping", *options],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        assert "engine ready" in first_line(process)
        return process

    with Database(server.url, database) as db:
        said = []
        for life in range(4):
            process = start()
            try:
                said.append(recovered(db))
                if life == 0:
                    db.apply(CLOSURE)
                for i in range(5 + life):
                    db.apply(edges((f"{life}", f"{i}"), (f"{i}", f"{life}")))
                db.apply(edges((f"{life}", "0"), weight=-1))
                until((tmp_path / f"{database}.checkpoint").exists)
            finally:
                process.send_signal(signal.SIGKILL)
                process.wait()
                assert process.stdout is not None
                process.stdout.close()
            check(db)
        assert said[0] == "derived anew, because there is no checkpoint"
        assert all(str(one).startswith("from the checkpoint of epoch") for one in said[1:]), said


class Held:
    """A small reasoner that says what it would take to derive its state."""

    def __init__(self, effort: float) -> None:
        self.reasoner = Reasoner("resident")
        self.record = self.reasoner.apply(facts={"p": [((1,), 1)]}).record
        self._effort = effort
        self.bytes = 1

    def checkpoint(self, incarnation: str = "", versions: Any = None) -> Checkpoint | None:
        return self.reasoner.checkpoint(incarnation, versions)

    def effort(self) -> float:
        return self._effort

    def memory(self) -> int:
        return self.bytes


def considered(kept: Checkpoints, held: Held, epoch: int, derivations: int) -> bool:
    """Whether a checkpoint is written after an epoch with so many derivations."""
    kept.evaluated(replace(held.record, derivations=derivations, relations={}))
    kept.consider(held, epoch, "", dict)
    if kept._child is None:
        return False
    kept.close(60)
    assert written(kept, epoch)
    return True


def test_a_checkpoint_is_written_when_enough_has_changed(tmp_path: Path) -> None:
    kept, held = Checkpoints(tmp_path, "d", When(0.0, 0.5, 100.0)), Held(1000.0)
    kept.consider(held, 1, "", dict)
    assert kept._child is None
    assert [considered(kept, held, *each) for each in ((1, 400), (2, 99), (3, 1), (4, 499))] == [
        False,
        False,
        True,
        False,
    ]
    # Symbols that were forgotten make it useless.
    held.record = replace(held.record, forgotten=np.zeros(1, np.int64))
    assert considered(kept, held, 5, 0)


def test_a_state_that_takes_little_or_is_on_spark_has_no_checkpoint(tmp_path: Path) -> None:
    for effort in (99.0, 0.0):
        kept, held = Checkpoints(tmp_path, "d", When(0.0, 0.5, 100.0)), Held(effort)
        assert not considered(kept, held, 1, 1000)
        kept.stop(held, 2, "", dict)
    assert list(tmp_path.iterdir()) == []


def test_a_state_that_is_large_is_not_written_at_the_end(tmp_path: Path) -> None:
    for bytes_, files in ((1 << 50, 0), (1 << 10, 1)):
        kept, held = Checkpoints(tmp_path, "d", When()), Held(1e9)
        held.bytes = bytes_
        kept.evaluated(held.record)
        kept.stop(held, 1, "", dict)
        assert len(list(tmp_path.iterdir())) == files


def test_no_sooner_than_it_may(tmp_path: Path) -> None:
    kept, held = Checkpoints(tmp_path, "d", When(1000.0, 0.0, 0.0)), Held(10.0)
    assert considered(kept, held, 1, 10)
    assert not considered(kept, held, 2, 10)


def test_where_checkpoints_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert EngineSettings().checkpoints is None
    assert EngineSettings(data_dir=tmp_path).checkpoints == tmp_path / "checkpoint"
    assert EngineSettings(data_dir=tmp_path, checkpoint_dir="none").checkpoints is None
    assert EngineSettings(checkpoint_dir=str(tmp_path / "other")).checkpoints == tmp_path / "other"
    monkeypatch.setenv("ZEDLOG_DATA_DIR", str(tmp_path))
    assert EngineSettings().checkpoints == tmp_path / "checkpoint"
    monkeypatch.setenv("ZEDLOG_CHECKPOINT_DIR", "none")
    assert EngineSettings().checkpoints is None
