"""Ad hoc queries: a conjunction is checked, evaluated once over given tuples, and forgotten.

In: a parsed query and the schemas of one epoch (`prepare`); then the tuples of the relations that it reads, as codes
(`evaluate`). Out: the distinct rows of the answer, as codes. Always: the answer is what a rule
`answer(columns) :- query` would derive in that epoch; derived relations are read as they are, so nothing that the
query does not mention is looked at, and nothing of the database changes.

The query becomes a circuit like any rule and runs on a throwaway resident placement. That costs a fraction of a
microsecond for each tuple that is read, plus the cost of the join; kernels do the work on tuples. A constant in an
atom, also one that an equation gives (`x = "a", p(x, y)`), narrows what is read.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.circuit.circuit import Circuit
from engine.circuit.compile import compile_circuit
from engine.circuit.naming import named
from engine.data.codes import Codes
from engine.data.symbols import SymbolTable
from engine.data.values import Encoder, Tuple, Value, decode, encode_value
from engine.database.program import MAX_BODY
from engine.errors import (
    ArityError,
    BudgetExceededError,
    ProgramError,
    UnknownRelationError,
    UnsafeRuleError,
    UnsupportedFeatureError,
    ZedlogError,
    did_you_mean,
    shown,
)
from engine.language.binding import sides
from engine.language.check import check_rule
from engine.language.inference import infer_schemas
from engine.language.parser import parse_query
from engine.language.prefixes import NO_PREFIXES, Prefixes
from engine.language.schema import Column, Schema
from engine.language.syntax import (
    Atom,
    Comparison,
    Constant,
    FunctorCall,
    Literal,
    Query,
    Rule,
    Term,
    Variable,
    names_outside,
    walk,
    walk_outside,
)
from engine.maintenance.facts import FactArrays
from engine.maintenance.placement import Budget, Executed, Placement

ANSWER = "@answer"
"""The relation of the answer: a name that no text can write."""
KEPT_ANSWER = "(answer)"
"""The same where the answer's changes are wanted: they are told of relations that are not internal."""
MAX_LITERALS = 256
"""The most literals in all alternatives of a query: each costs a plan, and planning is not part of the time budget."""

Bound = Mapping[int, Value]
_ONE = np.ones(1, np.int64)


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """A query that fits the schemas.

    columns: of the answer. reads: for each relation, the bindings of its columns under which its tuples are needed; an
    empty binding asks for all of them. constants: the symbols that the text names. computes_texts: the evaluation reads
    the texts of symbols, so it needs the whole table of symbols and not only codes.
    """

    text: str
    columns: tuple[Column, ...]
    rules: tuple[Rule, ...]
    reads: Mapping[str, tuple[Bound, ...]]
    schemas: Mapping[str, Schema]
    constants: frozenset[str]
    computes_texts: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """Distinct rows, in no particular order."""

    columns: tuple[Column, ...]
    tuples: list[Tuple]


def prepare(query: Query, schemas: Mapping[str, Schema]) -> PreparedQuery:
    """Check a query against the existing relations.

    Raises:
        UnknownRelationError: an atom's relation is in no schema.
        ArityError, TypeMismatchError, UnsafeRuleError, UnsupportedFeatureError: as for a rule.
    """
    literals = [literal for body in query.bodies for literal in body]
    if len(literals) > MAX_LITERALS or max(map(len, query.bodies)) > MAX_BODY:
        raise UnsupportedFeatureError(
            f"a query may have {MAX_BODY} literals in a conjunction and {MAX_LITERALS} in all of its alternatives; "
            "turn a part of it into a rule",
            text=query.text,
            span=literals[-1].span,
        )
    mentioned = {atom.relation: atom for literal in literals for atom in _atoms(literal)}
    for atom in mentioned.values():
        if atom.relation not in schemas:
            raise unknown_relation(atom, query.text, schemas)
    read = {name: schemas[name] for name in sorted(mentioned)}
    names, head = answer_head(query)
    rules = tuple(Rule(head, body, head.span, query.text) for body in query.bodies)
    try:
        for rule in rules:
            check_rule(rule)
        inferred = infer_schemas((), read, rules, read)
    except ArityError as error:
        # The query must follow the types that facts and rules have, whichever of them fixed the types.
        error.message = error.message.replace(" according to its facts", "")
        raise
    except ProgramError as error:
        _reword(error)
        raise
    columns = tuple(
        Column(name, column.type) for name, column in zip(names, inferred[ANSWER].columns, strict=True)
    )
    nodes = [node for literal in (head, *literals) for node in walk(literal)]
    return PreparedQuery(
        query.text,
        columns,
        rules,
        _reads(query),
        {**read, ANSWER: inferred[ANSWER]},
        frozenset(str(n.value) for n in nodes if isinstance(n, Constant) and isinstance(n.value, str)),
        any(
            isinstance(n, FunctorCall) or (isinstance(n, Comparison) and n.operator not in ("=", "!="))
            for n in nodes
        ),
    )


def evaluate(
    query: PreparedQuery, facts: Mapping[str, Sequence[Codes]], symbols: SymbolTable, budget: Budget
) -> Codes:
    """The answer's rows, int64[n, columns], distinct, in no particular order.

    facts: for each relation of `query.reads` int64[n, arity] arrays that together hold what is read; a tuple may come
    more than once. symbols: what the query computes is interned there.

    Raises:
        BudgetExceededError, EvaluationCancelledError: as `budget` says.
        EvaluationError: a computation has no value.
    """
    # Imported here, because it loads the compiled kernels, which a caller that only prepares a query need not wait for.
    from engine.resident.placement import ResidentPlacement

    # One thread: queries run beside one another, and beside the engine.
    placement = ResidentPlacement(threads=1)
    loaded = {
        name: (np.ascontiguousarray(np.concatenate(parts)), _ONE)
        for name, parts in facts.items()
        if any(map(len, parts))
    }
    execute(placement, compile_circuit(query.rules, query.schemas), loaded, symbols, budget)
    codes, _ = placement.tuples(ANSWER, {}, "all")
    return codes


def execute(
    placement: Placement,
    circuit: Circuit,
    facts: Mapping[str, FactArrays],
    symbols: SymbolTable,
    budget: Budget,
) -> Executed:
    """Bring a placement that holds a query's circuit, or nothing yet, to the changed facts.

    Raises:
        as `evaluate`; the placement is as before then.
    """
    try:
        return placement.execute(circuit, facts, Encoder(symbols), budget)
    except BudgetExceededError as error:
        raise _over(error, budget) from None
    except ZedlogError as error:
        _reword(error)
        raise


def answer(
    text: str,
    schemas: Mapping[str, Schema],
    read: Callable[[str, Mapping[int, int]], Codes],
    symbols: SymbolTable,
    budget: Budget,
    prefixes: Prefixes = NO_PREFIXES,
) -> Answer:
    """Answer a query over the tuples that `read` gives: those of a relation that have codes in columns. prefixes: those
    that it may use.
    `symbols` is as before when this returns.

    Raises:
        ZedlogError: as `prepare` and `evaluate` do, and for a text that is not a query.
    """
    query = prepare(parse_query(text, prefixes), schemas)
    mark = len(symbols)
    facts: dict[str, list[Codes]] = {}
    try:
        for relation, bindings in query.reads.items():
            parts = facts.setdefault(relation, [])
            for bound in bindings:
                codes = _codes_of(bound, symbols)
                if codes is not None:
                    parts.append(read(relation, codes))
        rows = evaluate(query, facts, symbols, budget)
        return Answer(query.columns, decode(rows, [column.type for column in query.columns], symbols))
    finally:
        symbols.truncate(mark)


def _codes_of(bound: Bound, symbols: SymbolTable) -> dict[int, int] | None:
    """The codes of bound values; None when a symbol occurs nowhere, so that no tuple has it."""
    codes: dict[int, int] = {}
    for column, value in bound.items():
        code = symbols.find(value) if isinstance(value, str) else encode_value(value, symbols)
        if code is None:
            return None
        codes[column] = code
    return codes


# ---- the parts of a query


def relations_of(query: Query) -> frozenset[str]:
    """The relations that a query mentions."""
    return frozenset(atom.relation for body in query.bodies for literal in body for atom in _atoms(literal))


def _atoms(literal: Literal) -> Iterator[Atom]:
    return (node for node in walk(literal) if isinstance(node, Atom))


def answer_head(query: Query) -> tuple[tuple[str, ...], Atom]:
    """The names of the answer's columns, and the head that derives it. Raises UnsafeRuleError."""
    if query.head is not None:
        return _names(query.head.terms), Atom(ANSWER, query.head.terms, query.head.span)
    first: dict[str, Variable] = {}
    for body in query.bodies:
        for variable in _outside(body):
            known = first.setdefault(variable.name, variable)
            if _place(variable) < _place(known):
                first[variable.name] = variable
    variables = sorted(first.values(), key=_place)
    for body in query.bodies:
        present = names_outside(*body)
        for variable in variables:
            if variable.name not in present:
                raise UnsafeRuleError(
                    f"the variable {variable.name} does not occur in every alternative (;) of the query; give the "
                    "query a head that names the columns of the answer, as in 'q(x) :- ...'",
                    text=query.text,
                    span=variable.span,
                )
    return tuple(v.name for v in variables), Atom(ANSWER, tuple(variables), query.bodies[0][0].span)


def _names(terms: Sequence[Term]) -> tuple[str, ...]:
    """A variable's own name; a computed column or a repeated variable is named by its position: c0, c1 ..."""
    written = {term.name for term in terms if isinstance(term, Variable)}
    names: list[str] = []
    for place, term in enumerate(terms):
        name = term.name if isinstance(term, Variable) else ""
        if not name or name in names:
            name = f"c{place}"
            while name in written or name in names:
                name += "_"
        names.append(name)
    return tuple(names)


def _outside(body: Iterable[Literal]) -> Iterator[Variable]:
    """The variables of a body that occur outside of its aggregates."""
    return (node for literal in body for node in walk_outside(literal) if isinstance(node, Variable))


def _place(variable: Variable) -> tuple[int, int]:
    return variable.span.line, variable.span.column


def _reads(query: Query) -> dict[str, tuple[Bound, ...]]:
    """What has to be read: for each relation the constants under which some atom asks for it."""
    found: dict[str, list[Bound]] = {}
    for body in query.bodies:
        given = given_constants(body)
        for atom in (atom for literal in body for atom in _atoms(literal)):
            bound: dict[int, Value] = {}
            for column, term in enumerate(atom.terms):
                if isinstance(term, Variable):
                    term = given.get(term.name, term)
                if isinstance(term, Constant):
                    bound[column] = term.value
            bindings = found.setdefault(atom.relation, [])
            if bound not in bindings:
                bindings.append(bound)
    return {relation: ({},) if {} in bindings else tuple(bindings) for relation, bindings in found.items()}


def given_constants(body: Sequence[Literal]) -> dict[str, Constant]:
    """The variables that an equation of the body sets to a constant."""
    pairs = (pair for literal in body for pair in sides(literal))
    return {variable: term for variable, term in pairs if isinstance(term, Constant)}


# ---- errors


def unknown_relation(atom: Atom, text: str, schemas: Mapping[str, Schema]) -> UnknownRelationError:
    """The error for an atom of `text` whose relation is in no schema, with its position and the most similar names."""
    folded = {name.casefold(): name for name in schemas}
    # Two letters that changed places are half of a short name.
    cutoff = 0.5 if len(atom.relation) <= 3 else 0.6
    near = [
        folded[name]
        for name in difflib.get_close_matches(atom.relation.casefold(), folded, n=3, cutoff=cutoff)
    ]
    message = f"there is no relation {shown(atom.relation)}.{did_you_mean(near)}"
    placed = ProgramError(message, text=text, span=atom.span)
    detail: dict[str, Any] = {"relation": atom.relation, "near": near, "rendered": str(placed)}
    return UnknownRelationError(message, **detail, **placed.detail)


def _reword(error: ZedlogError) -> None:
    """Remove the answer relation's internal name from an error."""
    for name in (ANSWER, KEPT_ANSWER):
        error.message = error.message.replace(name, "the answer")
    named(error, {ANSWER: "answer", KEPT_ANSWER: "answer"})


def _over(error: BudgetExceededError, budget: Budget) -> BudgetExceededError:
    """A placement's error, which speaks of transactions, reworded for a query."""
    what = error.detail.get("budget")
    text = {
        "seconds": f"takes more than the {budget.seconds or 0:g} seconds allowed",
        "tuples": f"needs more than the {budget.tuples or 0:,} tuples allowed, read and computed",
        "derivations": f"needs more than the {budget.derivations or 0:,} derivations allowed",
    }.get(str(what), "needs more memory than is allowed")
    return BudgetExceededError(f"the query {text}; make it more selective", budget=what)
