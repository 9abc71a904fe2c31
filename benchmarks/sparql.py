"""SPARQL over LUBM-1 with the rules of its ontology, over HTTP: filling the store, its memory, and how soon it knows.

    python -m benchmarks.sparql [--json FILE] [--requests N]

Embedded server, engine process and HTTP server run as with `zedlog serve`. The first query makes the store, which is
timed by the service itself. "Visible" is the time from a one-fact commit's answer until a query that was sent at once
has answered, and "with the commit" begins when the commit is sent. One client waits for each answer.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

from benchmarks.client import LUBM, Client, lubm
from benchmarks.report import Figure, figure, show
from service.cli.serve import Deployment, run

UB = "http://www.lehigh.edu/~zhp2/2004/0401/univ-bench.owl#"
STUDENTS = f"SELECT (COUNT(*) AS ?n) {{ ?x a <{UB}Student> }}"


class Service(Client):
    """One client of the service."""

    def ask(self, query: str, **parameters: str) -> httpx.Response:
        return self.get("/sparql", query=query, **parameters)

    def update(self, text: str) -> None:
        headers = {"content-type": "application/sparql-update"}
        self.http.post("/sparql", content=text, headers=headers).raise_for_status()

    def store(self) -> dict[str, Any]:
        found: dict[str, Any] = self.get("/v1/sparql").json()
        return found


def measure(url: str, requests: int) -> list[Figure]:
    triples, clauses = lubm()
    rules = [{"rule": clause} for clause in clauses]
    # Those about the file itself, `<>`, are no triples of RDF.
    triples = [triple for triple in triples if "<>" not in triple]
    with Service(url) as service:
        service.commit(
            {"facts": [{"relation": "triple", "tuples": list(map(list, triples))}], "rules": rules}
        )
        began = time.perf_counter()
        service.ask("ASK { }")
        first = time.perf_counter() - began
        store = service.store()
        about = f"{store['triples']:,} triples, asserted and derived"
        figures = [
            figure("the first query, which fills the store", [first], "s", 3.0, about),
            figure("of this, filling", [store["fill_seconds"]], "s", 3.0),
            figure("memory of the store", [store["bytes"] / 2**20], "MiB"),
        ]
        figures.append(figure("a count of students", _times(lambda i: service.ask(STUDENTS), requests), "ms"))
        point = "SELECT ?p ?o { <http://www.Department0.University0.edu/GraduateStudent44> ?p ?o }"
        figures.append(
            figure("the properties of one student", _times(lambda i: service.ask(point), requests), "ms")
        )
        visible, whole = [], []
        for i in range(requests):
            fact = {"relation": "triple", "tuples": [[f"<urn:bench:{i}>", "<urn:p>", "<urn:o>"]]}
            begun = time.perf_counter()
            token = service.commit({"facts": [fact]})
            committed = time.perf_counter()
            answer = service.ask(f"ASK {{ <urn:bench:{i}> <urn:p> <urn:o> }}", at_least=token)
            if not answer.json()["boolean"]:
                raise RuntimeError("the store does not have what was committed")
            visible.append((time.perf_counter() - committed) * 1e3)
            whole.append((time.perf_counter() - begun) * 1e3)
        figures.append(figure("a one-fact epoch, visible", visible, "ms", 15.0))
        figures.append(figure("the same, with the commit", whole, "ms"))
        inserted = _times(lambda i: service.update(f"INSERT DATA {{ <urn:bench:u{i}> <urn:p> 1 }}"), requests)
        figures.append(figure("INSERT DATA of one triple", inserted, "ms"))
        if service.store()["filled"] != 1:
            raise RuntimeError("the store was filled more than once")
        return figures


def _times(work: Any, count: int) -> list[float]:
    """Milliseconds of each."""
    seconds = []
    for i in range(count):
        began = time.perf_counter()
        work(i)
        seconds.append((time.perf_counter() - began) * 1e3)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--requests", type=int, default=50, help="of each kind (default 50)")
    options = parser.parse_args()
    if not LUBM.exists():
        print(f"{LUBM} is not there, so there is nothing to measure")
        return
    figures: list[Figure] = []

    def told(url: str) -> bool:
        figures.extend(measure(url, options.requests))
        return False

    with tempfile.TemporaryDirectory() as folder:
        run(Deployment(Path(folder), port=0), told)
    show("SPARQL over HTTP", figures, options.json)


if __name__ == "__main__":
    main()
