"""kill -9 of the engine, of the service and of the Redis server under a running stream of writes.

Every acknowledged transaction is there, none twice, and no reader ever saw half an epoch. The moments and
the victims come from a seed that the test's name shows; ZEDLOG_FAULT_SEEDS names others, separated by
commas.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.conformance.rest import facts, post, read, rules, weights
from tests.faults.writer import DECLARATIONS, RULES, Reader, Stoppable, Writer, look
from tests.live import PARTS, LiveSystem
from tests.oracle.clingo_oracle import solve
from tests.oracle.from_text import rules_from_text
from tests.waiting import until

SEEDS = [int(seed) for seed in os.environ.get("ZEDLOG_FAULT_SEEDS", "1").split(",")]
SECONDS = float(os.environ.get("ZEDLOG_FAULT_SECONDS", "10"))
LANES = 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kept", [False, True], ids=["derived", "from_checkpoints"])
def test_faults_no_acknowledged_transaction_is_lost_or_doubled(tmp_path: Path, seed: int, kept: bool) -> None:
    """kept: with a checkpoint after every epoch, so that most kills also meet one that is being written."""
    keeping = ("tests.process.keeping", "--checkpoint-dir", str(tmp_path / "checkpoint"))
    with LiveSystem(tmp_path, keeping if kept else ("engine.server",)) as live:
        with live.client() as client:
            post(client, {"declarations": DECLARATIONS, "rules": rules(RULES)})
        writers = [Writer(live, lane) for lane in range(LANES)]
        readers = [Reader(live), Reader(live)]
        threads: list[Stoppable] = [*writers, *readers]
        for thread in threads:
            thread.start()
        kill_at_random(live, random.Random(seed), threads)
        settled = [writer.acknowledged for writer in writers]
        wait_for_progress(writers, settled)
        for thread in threads:
            thread.finish(40)
        assert all(reader.views > 0 and len(reader.epochs) > 5 for reader in readers)
        assert sum(thread.broken_connections for thread in threads) > 0, "no kill met a client"
        check_the_end(live, writers)
        said = (tmp_path / "engine.log").read_text()
        assert ("from the checkpoint of epoch" in said) == kept
        assert "failed; deriving anew" not in said


def kill_at_random(live: LiveSystem, rng: random.Random, threads: list[Stoppable]) -> None:
    """Rounds of kills, each part at least once a round, one alone or two at the same moment."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        order = rng.sample(PARTS, len(PARTS))
        victims = [order[:1], order[1:]] if rng.random() < 0.5 else [[part] for part in order]
        for together in victims:
            time.sleep(rng.uniform(0.1, 1.5))
            for part in together:
                live.kill(part)
            time.sleep(rng.uniform(0, 0.4))
            for part in together:
                live.start(part)
        # A round that begins before the last one is over would only ever kill what is starting.
        live.wait_ready()
        for thread in threads:
            thread.check()


def wait_for_progress(writers: list[Writer], settled: list[int]) -> None:
    until(
        lambda: all(w.acknowledged > before + 3 for w, before in zip(writers, settled, strict=True)),
        "writes after the last kill",
    )


def check_the_end(live: LiveSystem, writers: list[Writer]) -> None:
    """Every acknowledged transaction once, nothing else, and what follows from them by another solver."""
    with live.client() as client:
        # What was only answered with 202 stands in the log before this one, so it is applied by then.
        post(client, {"facts": [facts("done", [[LANES]])]})
        view = look(client)
        view.check()
        held = {name: weights(client, name) for name in ("half", "step", "done")}
        derived = {name: set(read(client, name, limit=10_000)[1]) for name in ("whole", "reach")}
    sent = {(writer.lane,): writer.acknowledged for writer in writers}
    assert held["done"] == {**sent, (LANES,): 1}
    assert set(held["half"].values()) | set(held["step"].values()) == {1}
    expected = solve([rule for text in RULES for rule in rules_from_text(text)], held)
    assert derived == {name: expected[name] for name in derived}
