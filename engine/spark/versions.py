"""The state of a Spark placement between epochs: a version of each relation, and the tables of their layers."""

from __future__ import annotations

from collections.abc import Mapping

from engine.circuit.circuit import EMPTY
from engine.maintenance.epoch import Costs
from engine.spark.tables import Tables
from engine.spark.version import Version


class Versions:
    """See the module."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.circuit = EMPTY
        self.versions: dict[str, Version] = {}
        self.costs: Costs = {}

    def release(self, old: Mapping[str, Version], kept: Mapping[str, Version]) -> None:
        """Give back the storage of layers that no kept version has."""
        held = {id(table) for version in kept.values() for table in version.layers}
        for version in old.values():
            for table in version.layers:
                if id(table) not in held:
                    self.tables.release(table)
