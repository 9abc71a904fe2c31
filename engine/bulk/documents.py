"""Exported lines of N-Quads into documents of RDF, by a Python task of Spark.

In: a folder with files of lines. Out: the same files, each a document. It is done beside the engine, and not in its
process.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pyarrow as pa
from pyspark.sql import SparkSession

from engine.bulk.request import ExportRequest
from engine.errors import SparkUnavailableError
from engine.language.prefixes import Prefixes
from engine.rdf.writing import write_document
from engine.spark.session.tasks import can_map, map_in_arrow


def write_documents(session: SparkSession, folder: Path, request: ExportRequest, prefixes: Prefixes) -> None:
    """Turn each file `part-*` of the folder into a document of the request's format.

    Raises:
        SparkUnavailableError: this Spark runs no Python tasks.
    """
    parts = sorted(folder.glob("part-*"))
    if not parts:
        (folder / "part-00000").touch()
        parts = [folder / "part-00000"]
    given = orjson.dumps(dict(prefixes)).decode()
    rows = [(str(part), request.format, given) for part in parts]
    files = session.createDataFrame(rows, "path string, format string, prefixes string").repartition(
        len(rows)
    )
    if not can_map(files):
        raise SparkUnavailableError(
            "this Spark session runs no Python tasks, which documents of RDF need; export N-Triples, or install pandas"
        )
    map_in_arrow(files, _write, "path string").collect()


def _write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The task: each file of lines is replaced by its document."""
    for batch in batches:
        for row in batch.to_pylist():
            part = Path(row["path"])
            made = part.with_name(f".{part.name}.made")
            write_document(part, made, row["format"], orjson.loads(row["prefixes"]))
            made.replace(part)
            yield pa.RecordBatch.from_arrays([pa.array([str(part)])], names=["path"])
