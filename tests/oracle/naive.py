"""The least model by naive evaluation: apply every rule to everything until nothing is new.

In: rules and facts as data. Out: relation -> set of tuples. No index, no order, no difference: it is right
because there is nothing in it to be wrong. Cost: every derivation once per round, so for small inputs only;
`budget` ends a run that a random program made too large.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set

from tests.oracle.rules import Atom, Facts, Model, Row, Rule, Term, Value, Var, Wildcard

Binding = dict[str, Value]


class TooLargeError(Exception):
    """The program has more derivations than the caller wants to wait for."""


def least_model(rules: Iterable[Rule], facts: Facts, budget: int = 300_000) -> Model:
    """All tuples that follow from the facts of weight > 0. Relations without a tuple are left out."""
    rules = list(rules)
    model: Model = {name: {row for row, w in rows.items() if w > 0} for name, rows in facts.items()}
    steps = 0
    while True:
        derived = []
        for rule in rules:
            for binding, _ in bindings(rule.body, model):
                derived.append((rule.head.relation, instantiate(rule.head, binding)))
                steps += 1
                if steps > budget:
                    raise TooLargeError(f"more than {budget} derivations")
        before = sum(map(len, model.values()))
        for name, row in derived:
            model.setdefault(name, set()).add(row)
        if sum(map(len, model.values())) == before:
            return {name: rows for name, rows in model.items() if rows}


def bindings(
    body: tuple[Atom, ...], model: Mapping[str, Set[Row]], binding: Binding | None = None
) -> Iterator[tuple[Binding, tuple[Row, ...]]]:
    """Every way to match the body: what it binds, and the tuple that each atom matched."""
    binding = {} if binding is None else binding
    if not body:
        yield binding, ()
        return
    first, rest = body[0], body[1:]
    for row in model.get(first.relation, ()):
        extended = match(first.terms, row, binding)
        if extended is not None:
            for full, rows in bindings(rest, model, extended):
                yield full, (row, *rows)


def match(terms: tuple[Term, ...], row: Row, binding: Binding) -> Binding | None:
    """`binding` extended so that the terms equal the row, or None."""
    if len(terms) != len(row):
        raise ValueError(f"{terms} and {row} differ in arity")
    extended = dict(binding)
    for term, value in zip(terms, row, strict=True):
        if isinstance(term, Wildcard):
            continue
        expected = extended.setdefault(term.name, value) if isinstance(term, Var) else term
        if expected != value:
            return None
    return extended


def instantiate(head: Atom, binding: Binding) -> Row:
    row: list[Value] = []
    for term in head.terms:
        if isinstance(term, Wildcard):
            raise ValueError("a head has no wildcard")
        row.append(binding[term.name] if isinstance(term, Var) else term)
    return tuple(row)
