"""Zedlog's engine: incremental Datalog over Z-sets, as a library.

`from engine import Reasoner` is the front door. It opens when it is first used: the reasoner loads the
compiled kernels, a second that the command line and the HTTP service, which import other parts, need not pay.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.database.reasoner import Reasoner

__all__ = ["Reasoner"]


def __getattr__(name: str) -> Any:
    if name == "Reasoner":
        from engine.database.reasoner import Reasoner

        return Reasoner
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
