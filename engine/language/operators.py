"""Tables of the language: operators with their binding strength, functors, aggregates, and reserved words.

The parser and the printer of canonical text read the same tables, so that what one writes the other reads.
Precedences are Souffle's.
"""

from __future__ import annotations

import difflib
import re
from typing import NamedTuple

from engine.errors import InvalidRequestError, shown


class Operator(NamedTuple):
    """`precedence`: an operator with a larger one binds tighter. `right`: groups from the right, `a ^ (b ^ c)`."""

    precedence: int
    right: bool = False


BINARY = {
    "lor": Operator(1),
    "lxor": Operator(2),
    "land": Operator(3),
    "bor": Operator(4),
    "bxor": Operator(5),
    "band": Operator(6),
    "bshl": Operator(7),
    "bshr": Operator(7),
    "+": Operator(8),
    "-": Operator(8),
    "*": Operator(9),
    "/": Operator(9),
    "%": Operator(9),
    "^": Operator(11, right=True),
}
# Between the products and the power: -2 * 3 is (-2) * 3, but -x ^ 2 is -(x ^ 2).
UNARY_PRECEDENCE = 10
UNARY = ("-", "bnot", "lnot")

# Each condition with its negation: `!(x < y)` is kept as `x >= y`.
NEGATED = {
    "=": "!=",
    "!=": "=",
    "<": ">=",
    ">=": "<",
    "<=": ">",
    ">": "<=",
    "contains": "!contains",
    "!contains": "contains",
    "match": "!match",
    "!match": "match",
}

# Functors with their smallest and largest number of arguments.
FUNCTORS: dict[str, tuple[int, int | None]] = {
    "cat": (2, None),
    "max": (2, None),
    "min": (2, None),
    "ord": (1, 1),
    "range": (2, 3),
    "rdf_iri": (1, None),
    "rdf_literal": (1, 2),
    "strlen": (1, 1),
    "substr": (3, 3),
    "to_float": (1, 1),
    "to_number": (1, 1),
    "to_string": (1, 1),
}
AGGREGATES = ("count", "max", "mean", "min", "sum")

RESERVED = frozenset(
    {*FUNCTORS, *AGGREGATES, "contains", "match", "true", "false", "_"}
    | {word for word in (*BINARY, *UNARY) if word.isalpha()}
)

# What Souffle has and Zedlog lacks, by the word that starts it.
FOREIGN_DIRECTIVES = {
    ".comp": "components (.comp)",
    ".init": "components (.init)",
    ".override": "components (.override)",
    ".functor": "user-defined functors (.functor)",
    ".lattice": "lattices (.lattice)",
    ".limitsize": "size limits (.limitsize)",
    ".plan": "query plans by hand (.plan)",
    ".pragma": "pragmas (.pragma)",
    ".include": "includes (.include)",
    ".once": "includes (.once)",
    ".number_type": "the old form of type declarations (.number_type); write .type T <: number",
    ".symbol_type": "the old form of type declarations (.symbol_type); write .type T <: symbol",
    ".constraint": "directives for constraints (.constraint; write .decl r(...) constraint)",
}
FOREIGN_TERMS = {
    "[": "records",
    "$": "algebraic data types and counters ($)",
    "@": "user-defined functors (@)",
}
FOREIGN_FUNCTORS = frozenset({"as", "autoinc", "fold", "to_unsigned"})
FOREIGN_OPERATORS = frozenset({"bshru"})
DIRECTIVES = (".decl", ".type", ".prefix", ".rdf", ".input", ".output", ".printsize")

_RELATION = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*", re.ASCII)


def is_relation_name(name: str) -> bool:
    """Whether a rule can mention a relation of that name."""
    return name not in RESERVED and _RELATION.fullmatch(name) is not None


def check_relation_name(name: str) -> None:
    """Refuse a relation name that no rule could mention.

    Raises:
        InvalidRequestError: with the reason.
    """
    if name in RESERVED:
        raise InvalidRequestError(
            f"{shown(name)} is a reserved word of the language and cannot name a relation"
        )
    if not is_relation_name(name):
        raise InvalidRequestError(
            f"{shown(name)} cannot name a relation: a name consists of letters (A to Z), digits and '_', "
            "and does not begin with a digit"
        )


def closest(word: str, known: list[str] | tuple[str, ...]) -> str | None:
    """The known word that `word` was probably meant to be."""
    found = difflib.get_close_matches(word, known, n=1)
    return found[0] if found else None
