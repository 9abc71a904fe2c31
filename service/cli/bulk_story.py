"""The chapter of `zedlog demo` about Spark: the facts as a Parquet file, imported through Spark and evaluated on it.

In: a client of the running service, the facts, and the folder that the engine may import from. Out: text on the
terminal. The facts go into relations of their own (`spark.requires`), so the earlier part of the story is not affected.
If Spark cannot start, the chapter says what to install and ends.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from rich.markup import escape

from engine.errors import SparkUnavailableError
from engine.spark.session.java import java_home
from service.cli.client import Refused, ServiceClient
from service.cli.jobs import follow, report, seconds
from service.cli.output import counted, note, out
from service.cli.packages import PackageFacts

RULES = (
    "depends(p, d) :- requires(p, d).",
    "depends(p, d) :- depends(p, m), requires(m, d).",
)
IMPORTED = "spark.requires"


class BulkStory:
    """One telling. folder: below the engine's import root."""

    def __init__(self, client: ServiceClient, facts: PackageFacts, folder: Path) -> None:
        self._client, self._facts, self._folder = client, facts, folder

    def tell(self) -> bool:
        """Tell the chapter; False if Spark is not available."""
        out.print("\n[bold cyan]the same through Spark: the facts as a Parquet file, imported in bulk[/]")
        try:
            java_home()
            self._import()
            self._materialize()
        except SparkUnavailableError as error:
            note(f"  [yellow]this chapter is left out: {escape(str(error))}[/]")
            return False
        return True

    def _import(self) -> None:
        packages, dependencies = zip(*self._facts.requires, strict=True)
        table = pa.table({"package": packages, "dependency": dependencies})
        pq.write_table(table, self._folder / "requires.parquet")
        out.print(f"  requires.parquet: {counted(table.num_rows, 'row')}")
        note("  [dim]the engine starts Spark, which takes some ten seconds ...[/]")
        job = self._client.post("/v1/imports", {"path": "requires.parquet", "relation": IMPORTED})
        try:
            report(follow(self._client, job))
        except Refused as refusal:
            if refusal.code == SparkUnavailableError.code:
                raise SparkUnavailableError(str(refusal)) from refusal
            raise

    def _materialize(self) -> None:
        """The closure of the imported facts, computed on both placements, outside of the service."""
        # Here, because they load the compiled kernels, and Spark.
        from zedlog import Reasoner, SparkOptions, SparkSource

        pages = self._client.query(f"{IMPORTED}(p, d)", page=10_000)
        facts = [((package, dependency), 1) for page in pages for package, dependency in page["tuples"]]
        rules = [(rule, 1) for rule in RULES]
        source = SparkSource(SparkOptions(memory="1g"))
        found, took = {}, {}
        try:
            with _silent():
                source.session()
            # The first time each loads what it needs; the second time is what it takes.
            for placement in ("resident", "spark", "resident", "spark"):
                reasoner = Reasoner(placement, spark=source if placement == "spark" else None)
                began = time.perf_counter()
                reasoner.apply(facts={"requires": facts}, rules=rules)
                took[placement] = time.perf_counter() - began
                found[placement] = set(reasoner.facts("depends"))
                reasoner.close()
        finally:
            source.close()
        served = {
            tuple(row) for page in self._client.query("depends(p, d)", page=10_000) for row in page["tuples"]
        }
        equal = found["resident"] == found["spark"]
        out.print(
            f"  computed once more: {counted(len(found['spark']), 'tuple')} on Spark in {seconds(took['spark'])}, "
            f"{counted(len(found['resident']), 'tuple')} resident in {took['resident'] * 1000:.1f} ms: "
            f"{'[green]equal[/]' if equal else '[red]different[/]'}"
        )
        gone = len(found["spark"] - served)
        if gone:
            out.print(
                f"  [dim]the service holds {counted(gone, 'tuple')} fewer: "
                "the story above retracted a dependency[/]"
            )
        if not equal:
            raise AssertionError("the placements disagree")


@contextmanager
def _silent() -> Iterator[None]:
    """Keep processes that start meanwhile from writing to the terminal: Spark warns a lot before it can be silenced."""
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(nowhere)
        os.close(kept)
