"""Imports and exports of RDF, through Spark, into a reasoner of their own."""

from __future__ import annotations

from tests.bulk.conftest import bring
from tests.spark.conftest import java, source

__all__ = ["bring", "java", "source"]
