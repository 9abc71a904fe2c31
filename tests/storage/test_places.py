"""Where the engine has each relation travels with the epoch; an epoch of an older version does not say."""

from __future__ import annotations

from dataclasses import replace

import orjson
import redis

from engine.storage.manifest import Manifest
from tests.storage.writing import Model, change, epoch_record, new_publisher


def test_places_travel_with_the_epoch(client: redis.Redis, database: str) -> None:
    publisher, model = new_publisher(client, database), Model()
    record = epoch_record(1, {"r": change(model, "r", 2, {(1, 2): (1, False)})})
    publisher.publish(replace(record, away={"r": "it is large"}), [], "1-1")
    assert publisher.retained(1).away == {"r": "it is large"}
    data = publisher.manifest.encode()
    assert Manifest.decode(data).encode() == data
    parsed = orjson.loads(data)
    del parsed["away"]
    old = Manifest.decode(orjson.dumps(parsed))
    assert old.away is None
    assert old.encode() == replace(publisher.manifest, away=None).encode()
