"""The memory of the engine process while a large import is applied on Spark: with its facts and symbols on the
executors, and with all of them brought here.

    python -m benchmarks.imports [--json FILE] [--facts N] [--texts N]

The batch files hold N facts of two symbols with N distinct texts. Each measurement is a process of its own: `staged`
goes as far as the checks of the transaction and the codes of its values, `epoch` to the end of the epoch. The figure is
the peak of resident memory above that of the same process with Spark started and nothing imported. The JVM, which is a
child, does not count.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from engine.bulk.batches import WEIGHT, BatchStore
from engine.data.transaction import BatchFile, FactFiles, Transaction
from engine.database.staging import Staging
from engine.errors import ZedlogError
from engine.language.schema import ColumnType
from engine.spark.session.session import SparkOptions
from zedlog import Reasoner

FILES = 4
HERE = 2**62


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--json", type=Path)
    options.add_argument("--facts", type=int, default=3_000_000)
    options.add_argument("--texts", type=int, default=500_000)
    options.add_argument("--only", nargs=2, help=argparse.SUPPRESS)
    options.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.only:
        print(json.dumps(_measured(given.folder, given.only[0] == "executors", given.only[1])))
        return
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        _write(Path(folder), given.facts, given.texts)
        for where in ("executors", "engine"):
            for what in ("staged", "epoch"):
                command = [
                    sys.executable,
                    "-m",
                    "benchmarks.imports",
                    "--folder",
                    folder,
                    "--only",
                    where,
                    what,
                ]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                results[f"{where} {what}"] = json.loads(done.stdout.splitlines()[-1])
    table = Table(title=f"{given.facts:,} facts with {given.texts:,} texts")
    for heading in ("facts and symbols in", "measured", "memory, MiB", "seconds"):
        table.add_column(heading)
    for name, (memory, seconds) in results.items():
        table.add_row(*name.split(), f"{memory:,.0f}", f"{seconds:.1f}")
    Console().print(table)
    if given.json:
        given.json.write_text(json.dumps(results, indent=1))


def _write(folder: Path, facts: int, texts: int) -> None:
    """The batch files, and beside them the transaction as the log has it."""
    store, random = BatchStore(folder), np.random.default_rng(1)
    scratch = store.folder("job")
    paths = []
    for i in range(FILES):
        names = [
            pa.array(
                [f"http://example.org/a/{n}" for n in random.integers(0, texts, facts // FILES).tolist()]
            )
            for _ in range(2)
        ]
        paths.append(scratch / f"part-{i}.parquet")
        weights = np.ones(facts // FILES, np.int64)
        pq.write_table(pa.table([*names, weights], ["c0", "c1", WEIGHT]), paths[-1])
    batch = store.keep("job", "edge", [ColumnType.SYMBOL] * 2, paths)
    held = [[file.path, file.sha256, file.rows, file.bytes] for file in batch.files]
    (folder / "files.json").write_text(json.dumps(held))


def _measured(folder: Path, far: bool, what: str) -> tuple[float, float]:
    """(MiB, seconds)."""
    files = tuple(BatchFile(*held) for held in json.loads((folder / "files.json").read_text()))
    batch = FactFiles("edge", ("symbol", "symbol"), files)
    spark = SparkOptions(import_rows=100_000 if far else HERE, timeout=600)
    reasoner = Reasoner("spark", spark=spark)
    reasoner.apply(facts={"start": [(("spark",), 1)]}, rules=[("begun(x) :- start(x).", 1)])
    before, start = _peak(), time.perf_counter()
    transaction = BatchStore(folder).load(Transaction(batches=(batch,)))
    if what == "staged":
        Staging(reasoner.database).add(transaction)
    else:
        (outcome,) = reasoner.commit([transaction]).outcomes
        if isinstance(outcome, ZedlogError):
            raise outcome
    result = _peak() - before, time.perf_counter() - start
    reasoner.close()
    return result


def _peak() -> float:
    """The most memory, in MiB, that this process had so far."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    main()
