"""Changes: from decoded JSON or program text to a checked `Transaction`.

In: the decoded bodies of `POST /v1/transactions`, `/v1/facts` and `/v1/rules`. Out: a `Transaction` whose shapes,
weights, values and program text are valid, so that nothing malformed reaches the log. Always: an unknown field is an
error, because a misspelt `weight` would otherwise insert what it should retract.

The bodies are validated with the models that the API's description shows (validation.py). Tuples do not become models:
`Transaction.parse` checks them in one pass. Schemas and current weights depend on what the log holds before the
transaction, so the engine checks them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import starmap
from typing import Any, NamedTuple, TypeVar

from engine.data.transaction import Transaction, check_weight
from engine.errors import Span, UnsupportedFeatureError, ZedlogError
from engine.expressions import with_constant_facts
from engine.language.canonical import format_declaration
from engine.language.check import check_rule
from engine.language.parser import expanded, parse_declarations, parse_prefixes, parse_program, parse_rules
from engine.language.prefixes import ANY_PREFIX, NO_PREFIXES, Prefixes, format_prefix
from engine.language.syntax import CONSTRAINT, Constant, Declaration, ProgramText
from service.models import FactChange, ProgramChange, RuleChange, TransactionBody
from service.validation import BODY, read_as

T = TypeVar("T")
M = TypeVar("M", FactChange, RuleChange)


def transaction_from_json(
    decoded: Any, *, dry_run: bool, return_delta: bool, prefixes: Prefixes = NO_PREFIXES
) -> Transaction:
    """The transaction of a decoded `POST /v1/transactions` body, its program text checked. prefixes: those of the
    database, for `program`, which may also use those that `declarations` adds.

    Raises:
        InvalidRequestError, InvalidWeightError, InvalidValueError: it does not have the documented form.
        ProgramError: a rule or a declaration is wrong in itself.
    """
    body = read_as(TransactionBody, decoded)
    given = body.declarations
    declarations = given if isinstance(given, str) else "\n".join(given)
    more = _NOTHING
    if body.program:
        prefixes = {**prefixes, **with_place("declarations", lambda: parse_prefixes(declarations))}
        more = with_place("program", lambda: _parts(body.program, 1, prefixes))
    transaction = Transaction.parse(
        [vars(change) for change in body.facts] + more.facts,
        [vars(change) for change in body.rules] + more.rules,
        "\n".join(filter(None, (declarations, more.declarations))),
        body.mode,
        dry_run,
        return_delta,
        body.undeclare,
        message=body.message,
        source=body.source,
        replaces=body.replaces,
    )
    return check_program(transaction)


def facts_from_json(decoded: Any, *, mode: str, dry_run: bool, return_delta: bool) -> Transaction:
    """The transaction of a `POST /v1/facts` body: one change of facts, or a list of them."""
    facts = _one_or_more(FactChange, decoded)
    return Transaction.parse([vars(change) for change in facts], (), "", mode, dry_run, return_delta)


def rules_from_json(
    decoded: Any, *, mode: str, dry_run: bool, return_delta: bool, prefixes: Prefixes = NO_PREFIXES
) -> Transaction:
    """The transaction of a `POST /v1/rules` body: one rule, a list of rules, or a program. prefixes: those of the
    database.

    Raises: as `transaction_from_json`.
    """
    if isinstance(decoded, dict) and "program" in decoded:
        body = read_as(ProgramChange, decoded)
        weight = check_weight(body.weight, BODY)
        return program_transaction(
            body.program,
            weight,
            mode=mode,
            dry_run=dry_run,
            return_delta=return_delta,
            prefixes=prefixes,
            where="program",
        )
    rules = [vars(change) for change in _one_or_more(RuleChange, decoded)]
    return check_program(Transaction.parse((), rules, "", mode, dry_run, return_delta))


def _one_or_more(model: type[M], decoded: Any) -> list[M]:
    """The changes in a body that is one change, or a list of them."""
    if not isinstance(decoded, list):
        return [read_as(model, decoded)]
    return [read_as(model, entry, f"{BODY}[{i}]") for i, entry in enumerate(decoded)]


def program_transaction(
    text: str,
    weight: int,
    *,
    mode: str,
    dry_run: bool,
    return_delta: bool,
    prefixes: Prefixes = NO_PREFIXES,
    where: str = BODY,
) -> Transaction:
    """A whole program as a transaction: its facts and rules with `weight`, and its declarations, which are added, or
    withdrawn if the weight is negative. prefixes: those of the database; the program may declare further ones.

    Raises:
        ProgramError: the text is not a program, or a rule in it is unsafe.
        UnsupportedFeatureError: it contains a directive to read files.
    """
    parts = with_place(where, lambda: _parts(text, weight, prefixes))
    return Transaction.parse(
        parts.facts, parts.rules, parts.declarations, mode, dry_run, return_delta, parts.undeclare
    )


class _Parts(NamedTuple):
    """What a program's text adds to a transaction."""

    facts: list[dict[str, Any]]
    rules: list[dict[str, Any]]
    declarations: str
    undeclare: list[str]


_NOTHING = _Parts([], [], "", [])


def _parts(text: str, weight: int, prefixes: Prefixes) -> _Parts:
    program = _checked_program(text, prefixes)
    whole = expanded(text, prefixes)
    if whole is not text:
        # Places of faults are those of the text that was sent; from here on there are none.
        text, program = whole, _checked_program(whole, NO_PREFIXES)
    tuples: dict[str, list[list[Any]]] = {}
    for fact in program.facts:
        row = [term.value for term in fact.terms if isinstance(term, Constant)]
        tuples.setdefault(fact.relation, []).append(row)
    # The rules that one clause became share its span: the clause is sent once, and twice if it stands there twice.
    clauses = [_source(text, span) for span in dict.fromkeys(rule.span for rule in program.rules)]
    labels = [f"{label}:" for label in program.prefixes]
    declarations = [
        *starmap(format_prefix, program.prefixes.items()),
        *map(_declaration_text, program.declarations),
    ]
    return _Parts(
        [{"relation": relation, "tuples": rows, "weight": weight} for relation, rows in tuples.items()],
        [{"rule": clause, "weight": weight} for clause in clauses],
        "\n".join(declarations) if weight > 0 else "",
        [*labels, *(declaration.relation for declaration in program.declarations)] if weight < 0 else [],
    )


def _checked_program(text: str, prefixes: Prefixes) -> ProgramText:
    program = with_constant_facts(parse_program(text, prefixes))
    for rule in program.rules:
        check_rule(rule)
    for directive in program.directives:
        if directive.kind == "input":
            raise UnsupportedFeatureError(
                f"a program sent over HTTP cannot read files: remove .input, and send the facts of "
                f"{directive.relation} to /v1/facts",
                text=text,
                span=directive.span,
            )
    return program


def _source(text: str, span: Span) -> str:
    """The text of a span."""
    lines = text.split("\n")[span.line - 1 : span.end_line]
    lines[-1] = lines[-1][: span.end_column - 1]
    lines[0] = lines[0][span.column - 1 :]
    return "\n".join(lines)


def _declaration_text(declaration: Declaration) -> str:
    """The declaration without type aliases, which are not known outside of the program, and with only the qualifiers
    that affect the relation's meaning; the others only tell Souffle how to store or write it."""
    kept = (CONSTRAINT,) if declaration.is_constraint else ()
    return format_declaration(replace(declaration, qualifiers=kept))


def check_program(transaction: Transaction) -> Transaction:
    """The transaction itself, if its rules and declarations parse and each rule is safe.

    Schemas are not checked here: they depend on what the log holds before this transaction, so the engine checks them.

    Raises:
        ProgramError: with `where`, the place in the request's body.
    """
    if transaction.declarations:
        with_place("declarations", lambda: parse_declarations(transaction.declarations))
    for i, change in enumerate(transaction.rules):
        with_place(f"rules[{i}].rule", lambda text=change.rule: _check_rules(text))  # type: ignore[misc]
    return transaction


def _check_rules(text: str) -> None:
    for rule in parse_rules(text, ANY_PREFIX):
        check_rule(rule)


def with_place(where: str, work: Callable[[], T]) -> T:
    """`work()`; if it raises an error, the error also says where in the body the fault is."""
    try:
        return work()
    except ZedlogError as error:
        error.detail.setdefault("where", where)
        raise
