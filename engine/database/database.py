"""One database between two epochs.

Only the writer (engine/database/writer.py) changes it, all at once, at the end of an epoch; only the symbols grow
during an epoch, and shrink again if it is dropped. Everyone else reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.data.symbols import SymbolTable
from engine.database.home import Placements
from engine.database.program import Program
from engine.maintenance.placement import Placement


@dataclass(slots=True)
class Database:
    """`places` holds the derived state and says where it is, `epoch` is the number of the last committed epoch (0
    before the first). No fact ever had a weight above `heaviest`."""

    places: Placements
    symbols: SymbolTable = field(default_factory=SymbolTable)
    program: Program = field(default_factory=Program)
    epoch: int = 0
    heaviest: int = 0

    @property
    def placement(self) -> Placement:
        """The placement that holds the state now."""
        return self.places.now
