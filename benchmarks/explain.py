"""Explanations over HTTP: proofs of tuples of a large closure, warm.

    python -m benchmarks.explain [--json FILE] [--requests N]

The linear closure of an R-MAT graph (1,000 vertices, 10,000 edges: about a million tuples) is derived by the engine
process and published; embedded server, engine process and HTTP server run as with `zedlog serve`. Where ../shared/data
has LUBM-1, its ontology is turned into rules and tuples of `triple` are explained, too. Each request asks for another
tuple, drawn at random, from one client that waits for each answer, parsing of JSON aside; the first requests, during
which the service makes the indexes of the relations, are told apart.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.client import LUBM, Client, lubm
from benchmarks.engine import LINEAR, rmat
from benchmarks.report import Figure, figure, show
from service.cli.serve import Deployment, run

Json = dict[str, Any]
WARM_UP = 20
TARGET = 20.0


class Service(Client):
    """One client of the service."""

    def relation(self, name: str) -> tuple[int, str]:
        """How many tuples it has, and the name of its first column."""
        answer = self.get(f"/v1/relations/{name}").json()
        return int(answer["counts"]["all"]), str(answer["columns"][0]["name"])

    def facts(self, relation: str, **parameters: Any) -> list[list[Any]]:
        tuples: list[list[Any]] = self.get(f"/v1/relations/{relation}/facts", **parameters).json()["tuples"]
        return tuples

    def metric(self, name: str) -> float:
        for line in self.get("/metrics").text.splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
        raise AssertionError(f"/metrics has no {name}")


def explained(service: Service, name: str, asked: list[Json], target: float | None = TARGET) -> list[Figure]:
    """The figures of explanations, the first of which are for warming up."""
    times, sizes, heights = [], [], []
    before = 0.0
    for number, body in enumerate(asked):
        if number == WARM_UP:
            before = service.metric("process_cpu_seconds_total")
        start = time.perf_counter()
        answer = service.post("/v1/explain", body)
        times.append((time.perf_counter() - start) * 1000)
        found = answer.json()
        nodes = found.get("nodes", {})
        sizes.append(len(nodes))
        heights.append(nodes[found["root"]].get("height", 0) if nodes else 0)
    warm = times[WARM_UP:]
    cpu = (service.metric("process_cpu_seconds_total") - before) / len(warm) * 1000
    note = (
        f"p95 {np.percentile(warm, 95):.2g} ms, longest {max(warm):.2g} ms; {np.mean(sizes):.3g} tuples a proof, up to "
        f"{max(sizes)}, heights up to {max(heights)}; {cpu:.2g} ms of CPU in the service"
    )
    first = figure(f"{name}: the first, cold", times[:1], "ms")
    return [first, figure(name, warm, "ms", target, note)]


def closure(service: Service, requests: int) -> list[Figure]:
    """Tuples of the closure of R-MAT, and one that is absent."""
    edges = rmat(1000, 10_000)
    facts = [{"relation": "arc", "tuples": edges.tolist()}]
    body = {"facts": facts, "rules": [{"rule": text} for text in LINEAR]}
    service.commit(body)
    rng = np.random.default_rng(3)
    count, column = service.relation("tc")
    rows: list[list[int]] = []
    while len(rows) < requests + WARM_UP:
        x = int(edges[rng.integers(len(edges)), 0])
        reached = service.facts("tc", limit=1_000, **{column: x})
        rows.append(reached[rng.integers(len(reached))])
    why = [{"relation": "tc", "tuple": row} for row in rows]
    figures = explained(service, f"proof of a tuple of {count:,}", why)
    absent = [
        {"relation": "tc", "tuple": [int(1_000_000 + i), row[1]], "repairs": 0} for i, row in enumerate(rows)
    ]
    return [*figures, *explained(service, "why not, without repairs", absent)]


def derived_triples(service: Service, requests: int) -> list[Figure]:
    """Derived triples of LUBM-1 under the rules of its own ontology; none where it is missing."""
    if not LUBM.exists():
        print(f"{LUBM} is not there, so LUBM-1 is left out")
        return []
    triples, rules = lubm()
    body = {"facts": [{"relation": "triple", "tuples": triples}], "rules": [{"rule": text} for text in rules]}
    service.commit(body)
    count, _ = service.relation("triple")
    given, rng = set(triples), np.random.default_rng(3)
    derived: list[list[str]] = service.facts("triple", domain="derived", limit=50_000)
    derived = [row for row in derived if tuple(row) not in given]
    asked = [derived[i] for i in rng.choice(len(derived), requests + WARM_UP)]
    name = f"proof of a derived triple of LUBM-1, {len(rules)} rules, {count:,} triples"
    return explained(service, name, [{"relation": "triple", "tuple": row} for row in asked])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--requests", type=int, default=300, help="of each kind (default 300)")
    options = parser.parse_args()
    figures: list[Figure] = []

    def told(url: str) -> bool:
        with Service(url) as service:
            figures.extend(closure(service, options.requests))
            figures.extend(derived_triples(service, options.requests))
        return False

    with tempfile.TemporaryDirectory() as folder:
        run(Deployment(Path(folder), port=0), told)
    show("Explanations over HTTP", figures, options.json)


if __name__ == "__main__":
    main()
