"""A whole-program analysis: many rules, relations of two to four columns, most tuples with one derivation.

    python -m benchmarks.analysis [--json FILE] [--runs N] [--size N] [--threads N]

The rules are in benchmarks/analysis.dl; the facts, `size` modules of an invented program, are made here with a fixed
seed. A method of that program is a list of statements over its own variables, with branches. Virtual calls stay within
a module, whose classes inherit from each other; static calls go to the modules after it. The default size makes about
11 million tuples, nine of ten with a single derivation. The time is that of the transaction that adds the rules to
loaded facts.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from benchmarks.engine import Array
from benchmarks.report import Figure, figure, show
from engine.language.canonical import canonical_text
from engine.language.parser import parse_program
from engine.resident.warm import load_all
from zedlog import Reasoner

RULES = Path(__file__).with_suffix(".dl")
SIZE = 36

# Of each module, class, and method.
CLASSES, METHODS, STATEMENTS, LOCALS = 10, 6, 40, 20
FIELDS, FORMALS, SIGNATURES = 3, 2, 12

# What a statement is, with its share; the others only pass control on.
SHARES = {
    "new": 0.155,
    "move": 0.12,
    "cast": 0.03,
    "load": 0.04,
    "store": 0.04,
    "getStatic": 0.01,
    "putStatic": 0.01,
    "arrayLoad": 0.02,
    "arrayStore": 0.02,
    "constant": 0.15,
    "binary": 0.15,
    "branch": 0.06,
    "throw": 0.004,
    "lock": 0.006,
    "unlock": 0.004,
    "virtualCall": 0.056,
    "staticCall": 0.015,
}


def rules() -> list[str]:
    """The rules of the analysis."""
    return [canonical_text(rule) for rule in parse_program(RULES.read_text()).rules]


def facts(size: int, seed: int = 5) -> dict[str, Array]:
    """The facts of `size` modules: relation -> int64[n, arity]. Things of different kinds may have the same number."""
    rng = np.random.default_rng(seed)
    classes, methods = size * CLASSES, size * CLASSES * METHODS
    c, m, s = np.arange(classes), np.arange(methods), np.arange(methods * STATEMENTS)
    v, f = np.arange(methods * LOCALS), np.arange(classes * FIELDS)

    def some(things: Array, share: float) -> Array:
        return things[rng.random(len(things)) < share]

    def near(owners: Array, each: int) -> Array:
        """For each owner, such as a method, one of its `each` things, such as a variable."""
        return owners * each + rng.integers(0, each, len(owners))

    def table(*columns: Array | int) -> Array:
        return np.unique(np.stack(np.broadcast_arrays(*columns), axis=1).astype(np.int64), axis=0)

    heirs, implementing, typed, catching = c[c % CLASSES > 0], some(c, 0.3), some(v, 0.3), some(m, 0.05)
    per_module = CLASSES * METHODS
    made = {
        "classIn": table(c, c // CLASSES),
        "extends": table(heirs, heirs // CLASSES * CLASSES + rng.integers(0, heirs % CLASSES)),
        "implements": table(implementing, classes + implementing // CLASSES),
        "depends": table(np.arange(1, size), np.arange(size - 1)),
        "methodIn": table(m, m // METHODS),
        "declares": table(m // METHODS, near(m // per_module, SIGNATURES), m),
        "annotated": table(some(m, 0.1), 1),
        "native": table(some(m, 0.02)),
        "entryPoint": table(some(m, 0.05)),
        "fieldOf": table(f, f // FIELDS),
        "formal": np.concatenate([table(m, i, m * LOCALS + i) for i in range(FORMALS)]),
        "this": table(m, m * LOCALS + FORMALS),
        "returns": table(m, near(m, LOCALS)),
        "varType": table(typed, near(typed // LOCALS // per_module, CLASSES)),
        "statement": table(s, s // STATEMENTS),
        "first": table(m, m * STATEMENTS),
        "last": table(m, m * STATEMENTS + STATEMENTS - 1),
        "catches": table(catching, near(catching // per_module, CLASSES), near(catching, LOCALS)),
        "source": table(some(m, 0.02), 1),
        "sink": table(some(m, 0.03), 0, 1),
        "sanitizer": table(some(m, 0.02), 1),
    }
    kind = np.searchsorted(np.cumsum(list(SHARES.values())), rng.random(len(s)))
    at = {name: s[kind == i] for i, name in enumerate(SHARES)}

    def variable(name: str) -> Array:
        """A variable of the method of each statement of a kind."""
        return near(at[name] // STATEMENTS, LOCALS)

    def module(name: str) -> Array:
        return at[name] // (STATEMENTS * per_module)

    ahead = at["branch"] + rng.integers(2, 12, len(at["branch"]))
    inside = ahead // STATEMENTS == at["branch"] // STATEMENTS
    straight = s[s % STATEMENTS < STATEMENTS - 1]
    called = (module("staticCall") + 1) * per_module + rng.integers(0, per_module, len(at["staticCall"]))
    known = called < methods
    calls = np.concatenate((at["virtualCall"], at["staticCall"][known]))
    operands = {
        "new": (variable("new"), at["new"]),
        "move": (variable("move"), variable("move")),
        "cast": (variable("cast"), variable("cast"), near(module("cast"), CLASSES)),
        "load": (variable("load"), variable("load"), near(module("load"), CLASSES * FIELDS)),
        "store": (variable("store"), near(module("store"), CLASSES * FIELDS), variable("store")),
        "getStatic": (variable("getStatic"), near(module("getStatic"), CLASSES)),
        "putStatic": (near(module("putStatic"), CLASSES), variable("putStatic")),
        "arrayLoad": (variable("arrayLoad"), variable("arrayLoad")),
        "arrayStore": (variable("arrayStore"), variable("arrayStore")),
        "constant": (variable("constant"), rng.integers(0, 8, len(at["constant"]))),
        "binary": (variable("binary"), variable("binary"), variable("binary")),
        "branch": (variable("branch"),),
        "throw": (variable("throw"),),
        "lock": (variable("lock"),),
        "unlock": (variable("unlock"),),
        "virtualCall": (variable("virtualCall"), near(module("virtualCall"), SIGNATURES)),
    }
    return (
        made
        | {name: table(at[name], *columns) for name, columns in operands.items()}
        | {
            "next": np.concatenate(
                (table(straight, straight + 1), table(at["branch"][inside], ahead[inside]))
            ),
            "heapType": table(at["new"], near(module("new"), CLASSES)),
            "staticCall": table(at["staticCall"][known], called[known]),
            "actual": np.concatenate(
                [table(calls, i, near(calls // STATEMENTS, LOCALS)) for i in range(FORMALS)]
            ),
            "result": table(calls, near(calls // STATEMENTS, LOCALS)),
        }
    )


def measure(size: int, runs: int, threads: int) -> list[Figure]:
    """Add the rules to the facts, `runs` times from scratch."""
    given, added = facts(size), [(rule, 1) for rule in rules()]
    seconds = []
    for _ in range(runs):
        reasoner = Reasoner(threads=threads)
        reasoner.apply(facts=given)
        start = time.perf_counter()
        result = reasoner.apply(rules=added)
        seconds.append(time.perf_counter() - start)
    relations = reasoner.relations()
    tuples, derivations = sum(map(reasoner.count, relations)), result.cost["derivations"]
    derived = sum(reasoner.count(name, "derived") for name in relations)
    about = (
        f"{len(added)} rules, {len(relations)} relations, {sum(map(len, given.values())):,} facts, "
        f"{tuples:,} tuples, {derivations:,} derivations of {derived:,} derived tuples"
    )
    name, default = f"analysis of {size} modules", size == SIZE
    memory = reasoner.memory()
    return [
        figure(f"{name}, {threads} thread{'s' * (threads > 1)}", seconds, "s", 8 if default else None, about),
        figure(f"{name}: memory a tuple", [memory / tuples], "B", 100, f"{memory / 2**20:,.0f} MiB"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--runs", type=int, default=3, help="bootstraps (default 3)")
    parser.add_argument("--size", type=int, default=SIZE, help=f"modules of the program (default {SIZE})")
    parser.add_argument("--threads", type=int, default=1, help="threads of the reasoner (default 1)")
    options = parser.parse_args()
    load_all()
    show("Program analysis", measure(options.size, options.runs, options.threads), options.json)


if __name__ == "__main__":
    main()
