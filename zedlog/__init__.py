"""Zedlog as a library: incremental Datalog over Z-sets.

    from zedlog import Reasoner          # incremental Datalog in this process
    from zedlog import Client            # the client of a running service

This module holds the names that a user needs; each is imported when it is first used, so that `import zedlog` is cheap.
`zedlog.errors` has the exceptions.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.data.transaction import FactChange, RuleChange, Transaction
    from engine.database.epoch import EpochResult, RuleInfo
    from engine.database.query import Answer
    from engine.database.reasoner import Reasoner
    from engine.database.writer import GroupResult
    from engine.errors import ZedlogError
    from engine.explain.local import explain
    from engine.language.schema import Column, Schema
    from engine.maintenance.placement import Budget
    from engine.maintenance.policy import Policy
    from engine.spark.session.options import SparkOptions
    from engine.spark.session.session import SparkSource
    from zedlog import errors
    from zedlog.client.client import AsyncClient, Client

    __version__: str

__all__ = [
    "Answer",
    "AsyncClient",
    "Budget",
    "Client",
    "Column",
    "EpochResult",
    "FactChange",
    "GroupResult",
    "Policy",
    "Reasoner",
    "RuleChange",
    "RuleInfo",
    "Schema",
    "SparkOptions",
    "SparkSource",
    "Transaction",
    "ZedlogError",
    "__version__",
    "errors",
    "explain",
]

_MODULES = {
    "Answer": "engine.database.query",
    "AsyncClient": "zedlog.client.client",
    "Budget": "engine.maintenance.placement",
    "Client": "zedlog.client.client",
    "Column": "engine.language.schema",
    "EpochResult": "engine.database.epoch",
    "FactChange": "engine.data.transaction",
    "GroupResult": "engine.database.writer",
    "Policy": "engine.maintenance.policy",
    "Reasoner": "engine.database.reasoner",
    "RuleChange": "engine.data.transaction",
    "RuleInfo": "engine.database.epoch",
    "Schema": "engine.language.schema",
    "SparkOptions": "engine.spark.session.options",
    "SparkSource": "engine.spark.session.session",
    "Transaction": "engine.data.transaction",
    "ZedlogError": "engine.errors",
    "explain": "engine.explain.local",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = getattr(import_module(_MODULES[name]), name)
    elif name == "errors":
        value = import_module("zedlog.errors")
    elif name == "__version__":
        value = import_module("importlib.metadata").version("zedlog")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
