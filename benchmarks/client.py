"""What the benchmarks over HTTP share: one client of the service, and LUBM-1 with the rules of its own ontology."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Self

import httpx

from benchmarks.engine import DATA
from engine.ontology.program import compile_ontology
from engine.ontology.triples import read_triples

LUBM = DATA / "lubm1.nt.gz"
# The file has a second, older copy of the ontology.
_OTHER_COPY = "http://swat.cse.lehigh.edu/"


class Client:
    """One client of the service; each answer that is not a success raises."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(base_url=url, timeout=600, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def get(self, path: str, **parameters: Any) -> httpx.Response:
        return self.http.get(path, params=parameters).raise_for_status()

    def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        return self.http.post(path, json=body).raise_for_status()

    def commit(self, body: dict[str, Any]) -> str:
        """A transaction, waited for; the token of its epoch."""
        answer = self.post("/v1/transactions", body).json()
        while answer.get("status") == "pending":
            time.sleep(0.2)
            answer = self.get(answer["status_url"]).json()
        return str(answer.get("token") or answer["result"]["token"])


def lubm(path: Path = LUBM) -> tuple[list[tuple[str, str, str]], list[str]]:
    """The triples of LUBM-1, each once, and the rules of its ontology."""
    triples = [
        triple
        for triple in dict.fromkeys(read_triples(path))
        if not any(_OTHER_COPY in term for term in triple)
    ]
    _, compiled = compile_ontology(triples, path.name)
    return triples, [clause for _, clauses in compiled.clauses for clause in clauses]
