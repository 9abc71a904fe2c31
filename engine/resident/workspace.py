"""The memory that the compiled loop works in (climb.py): its ledger, schedule and profile.

Always: between two strata, for which it is kept, the schedule is empty, and no larger than `_KEPT`. Growth is announced
first.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np

from engine.resident import climb
from engine.resident.layout import I64, NONE, grown
from engine.resident.views import CALLBACK

_KEPT = 1 << 20
_LEAST = 3
"""Numbers of a height in the lists of a stratum with one relation."""

Handler = Callable[[int, int, int], None]
Announce = Callable[[int], None]


class Workspace:
    """See the module. `handler` does what the loop asks for; an exception from it stops the loop and is kept."""

    def __init__(self) -> None:
        self.ledger: I64 = np.zeros(climb.LEDGER, np.int64)
        self.tallies = np.zeros(3, np.float64)
        self.handler: Handler | None = None
        self.error: BaseException | None = None
        self._function = CALLBACK(self._called)
        address = ctypes.cast(self._function, ctypes.c_void_p).value
        assert address is not None, "a function has an address"
        self.ledger[climb.CALL] = address
        self._profile = np.empty((256, 2), np.int64)
        self.ledger[climb.PROFILE_AT] = self._profile.ctypes.data
        self.ledger[climb.PROFILE_ROOM] = len(self._profile)
        self._shrink()

    def _called(self, what: int, a: int, b: int) -> int:
        try:
            assert self.handler is not None, "a loop runs for a stratum"
            self.handler(what, a, b)
            return 0
        except BaseException as error:
            self.error = error
            return 1

    # ---- a stratum

    def begin(self, own: int, handler: Handler) -> None:
        """A stratum with `own` relations of its own."""
        ledger = self.ledger
        if ledger[climb.HEAP] or ledger[climb.ITEMS]:
            # The last one was given up.
            self._shrink()
        self.handler, self.error = handler, None
        ledger[climb.OWN_RELATIONS] = own
        ledger[climb.LISTS_ROOM] = len(self._lists) // (2 * own + 1)
        ledger[
            [
                climb.SPENT,
                climb.PUSHED,
                climb.PROFILE,
                climb.WORK,
                climb.STEPPED,
                climb.NOTED,
                climb.COLLECTED,
                climb.DELETING,
            ]
        ] = 0
        ledger[climb.HEIGHT] = -1
        self.tallies[:] = 0

    def end(self) -> None:
        """The stratum is done, or given up: let go of it, and give back what grew large."""
        self.handler = None
        if len(self._lists) + len(self._items) > _KEPT:
            self._shrink()

    def _shrink(self) -> None:
        self._heap, self._lists = np.empty(1024 // _LEAST, np.int32), np.zeros(1024, np.int32)
        self._items = np.empty((1024, 2), np.int32)
        ledger = self.ledger
        ledger[[climb.HEAP, climb.ITEMS, climb.ITEMS_FREE]] = 0
        ledger[climb.ITEM_FREE] = NONE
        ledger[climb.ITEMS_ROOM] = len(self._items)
        self._write()

    def _write(self) -> None:
        ledger = self.ledger
        ledger[climb.HEAP_AT] = self._heap.ctypes.data
        ledger[climb.LISTS_AT] = self._lists.ctypes.data
        ledger[climb.ITEMS_AT] = self._items.ctypes.data

    # ---- room

    def grow_heights(self, tallest: int, announce: Announce) -> None:
        """Make room for rows at the height `tallest`."""
        each = 2 * int(self.ledger[climb.OWN_RELATIONS]) + 1
        size = max(2 * len(self._lists), each * (tallest + 1))
        announce(4 * (size + size // _LEAST))
        lists = np.zeros(size, np.int32)
        lists[: len(self._lists)] = self._lists
        # However few relations the next stratum has.
        self._lists, self._heap = lists, grown(self._heap, size // _LEAST)
        self.ledger[climb.LISTS_ROOM] = size // each
        self._write()

    def grow_items(self, more: int, announce: Announce) -> None:
        """Make room for `more` rows in the schedule."""
        size = len(self._items) + max(len(self._items), more)
        announce(8 * size)
        self._items = grown(self._items, size)
        self.ledger[climb.ITEMS_ROOM] = size
        self._write()

    def profile(self) -> list[list[int]]:
        """(height, derivations) that were counted; empties it."""
        n = int(self.ledger[climb.PROFILE])
        self.ledger[climb.PROFILE] = 0
        counted: list[list[int]] = self._profile[:n].tolist()
        return counted
