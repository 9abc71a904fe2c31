"""The HTTP calls that conformance and fault tests make, without any knowledge of what answers them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx

from tests.oracle.rules import Row


def post(client: httpx.Client, body: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Send a transaction and wait until it is committed."""
    response = client.post("/v1/transactions", json=body, **options)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def facts(relation: str, tuples: Any, weight: int = 1) -> dict[str, Any]:
    return {"relation": relation, "tuples": tuples, "weight": weight}


def rules(texts: list[str], weight: int = 1) -> list[dict[str, Any]]:
    return [{"rule": text, "weight": weight} for text in texts]


def count(client: httpx.Client, relation: str, **parameters: Any) -> int:
    response = client.get(f"/v1/relations/{relation}", params=parameters)
    assert response.status_code == 200, response.text
    return int(response.json()["counts"]["all"])


def pages(client: httpx.Client, relation: str, **parameters: Any) -> Iterator[dict[str, Any]]:
    """Every page of one cursor chain."""
    cursor: str | None = None
    while True:
        chosen = parameters if cursor is None else {**parameters, "cursor": cursor}
        response = client.get(f"/v1/relations/{relation}/facts", params=chosen)
        response.raise_for_status()
        page: dict[str, Any] = response.json()
        yield page
        cursor = page["cursor"]
        if cursor is None:
            return


def read(client: httpx.Client, relation: str, **parameters: Any) -> tuple[int, list[Row]]:
    """The epoch, and all tuples of a relation at it. Every page is of that epoch."""
    rows: list[Row] = []
    epochs = set()
    for page in pages(client, relation, **parameters):
        epochs.add(page["epoch"])
        rows.extend(map(tuple, page["tuples"]))
    assert len(epochs) == 1, f"the pages of one chain are of the epochs {epochs}"
    assert len(set(rows)) == len(rows), f"a tuple of {relation} stands on two pages"
    return epochs.pop(), rows


def weights(client: httpx.Client, relation: str) -> dict[Row, int]:
    """The asserted facts of a relation and their weights."""
    held: dict[Row, int] = {}
    for page in pages(client, relation, domain="asserted", limit=10_000):
        held.update(zip(map(tuple, page["tuples"]), page["weights"], strict=True))
    return held
