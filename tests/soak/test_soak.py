"""The soak finds what it is there to find: its oracle over a live system that was tampered with; its proxy."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from engine.errors import StorageUnavailableError
from engine.storage.connection import connect, storage_errors
from engine.storage.embedded import EmbeddedServer
from tests.live import LiveSystem
from tests.soak.load import RULES, Done, Shared, send
from tests.soak.oracle import Oracle
from tests.soak.proxy import Proxy
from tests.soak.tally import Tally


def pair(number: int) -> dict[str, Any]:
    return {"facts": [{"relation": name, "tuples": [[0, number]], "weight": 1} for name in ("left", "right")]}


def test_the_oracle_finds_what_is_lost_twice_torn_and_wrong(live: LiveSystem, tmp_path: Path) -> None:
    shared = Shared(live.url, Tally())
    oracle = Oracle(shared, tmp_path)
    bad = shared.tally.counts
    with shared.client() as http:

        def recorded(body: dict[str, Any], key: str) -> None:
            shared.done.append(send(http, shared, body, key))

        recorded({"rules": [{"rule": rule} for rule in RULES]}, "rules")
        for number in range(3):
            recorded(pair(number), f"pair-{number}")
        recorded({"facts": [{"relation": "edge", "tuples": [["a", "b"], ["b", "c"]]}]}, "edges")
        oracle.check(None)
        assert shared.tally.clean, shared.tally.found
        assert (bad["comparisons"], bad["backups"]) == (1, 1)
        # Sent again with its key, it is the same transaction; without, it is applied twice.
        again = send(http, shared, pair(0), "pair-0")
        assert again.id == shared.done[1].id
        http.post("/v1/transactions", json=pair(1)).raise_for_status()
        oracle.check(None)
        assert bad["twice"] == 2
        assert bad["wrong backups"] == 0
        # One whose effect nobody can see.
        shared.done.append(Done("9999999999999-0", shared.done[-1].epoch, pair(77), (0, 77)))
        oracle.check(None)
        assert bad["lost"] == 2
        assert bad["half epochs read"] == 0
        half = {
            "facts": [{"relation": "left", "tuples": [[0, 88]]}, {"relation": "edge", "tuples": [["c", "d"]]}]
        }
        wrong = bad["wrong tuples"]
        http.post("/v1/transactions", json=half).raise_for_status()
        oracle.check(None)
        assert bad["half epochs read"] == 1
        # left, torn, the edge, and what is derived from it.
        assert bad["wrong tuples"] - wrong > 6
        assert bad["wrong backups"] == 1
    assert not shared.tally.clean


def test_the_proxy_cuts_and_slows(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as server, Proxy(server.url) as proxy:
        client = connect(proxy.url)
        client.set("a", "b")
        assert client.get("a") == b"b"
        proxy.lose(30)
        with pytest.raises(StorageUnavailableError), storage_errors():
            client.get("a")
        proxy.lose(0)
        assert client.get("a") == b"b"
        ended = threading.Event()

        def ask() -> None:
            with suppress(redis.RedisError):
                client.get("a")
            ended.set()

        proxy.slow(60, 30)
        waiting = threading.Thread(target=ask, daemon=True)
        waiting.start()
        assert not ended.wait(0.5)
        proxy.slow(0, 0)
        proxy.lose(0)
        assert ended.wait(60)
        waiting.join()
        client.close()
