"""Changes: from decoded JSON or program text to a checked `Transaction`.

In: the decoded bodies of `POST /v1/transactions`, `/v1/facts` and `/v1/rules`. Out: a `Transaction` whose
shapes, weights, values and program text are right, so that nothing malformed reaches the log. Always: a field
that is not known is an error, because a misspelt `weight` would otherwise insert what it should retract.

Tuples do not become pydantic models: `Transaction.parse` passes over them once. Schemas and weights depend on
what the log holds before the transaction, so those checks are the engine's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from engine.data.transaction import Transaction, check_weight
from engine.errors import InvalidRequestError, Span, UnsupportedFeatureError, ZedlogError, did_you_mean, shown
from engine.expressions import with_constant_facts
from engine.language.canonical import format_declaration
from engine.language.check import check_rule
from engine.language.parser import parse_declarations, parse_program, parse_rules
from engine.language.syntax import CONSTRAINT, Constant, Declaration, ProgramText
from service.problems import near

T = TypeVar("T")


def check_object(
    value: Any, where: str, known: Sequence[str], required: Sequence[str] = ()
) -> Mapping[str, Any]:
    """`value`, which is a JSON object with no other than the known fields and with all required ones.

    Raises:
        InvalidRequestError: otherwise.
    """
    if not isinstance(value, dict):
        raise InvalidRequestError(f"{where} must be a JSON object; it may have the fields {_listed(known)}")
    for name in value:
        if name not in known:
            raise InvalidRequestError(
                f"{where} has an unknown field {shown(name)}; it may have {_listed(known)}."
                + did_you_mean(near(name, known)),
                field=name,
            )
    for name in required:
        if name not in value:
            raise InvalidRequestError(f"{where} lacks the field {shown(name)}", field=name)
    return value


def check_entries(
    value: Any, where: str, known: Sequence[str], required: Sequence[str]
) -> list[Mapping[str, Any]]:
    """`value`, which is a list of such objects."""
    if not isinstance(value, list):
        raise InvalidRequestError(
            f"{where} must be a list of objects, which may have the fields {_listed(known)}"
        )
    return [check_object(entry, f"{where}[{i}]", known, required) for i, entry in enumerate(value)]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(shown, names))


FACT_FIELDS: Final = ("relation", "tuples", "weight")
RULE_FIELDS: Final = ("rule", "weight")
PROGRAM_FIELDS: Final = ("program", "weight")
TRANSACTION_FIELDS: Final = ("facts", "rules", "declarations", "mode", "undeclare")


def transaction_from_json(decoded: Any, *, dry_run: bool, return_delta: bool) -> Transaction:
    """The transaction of a decoded `POST /v1/transactions` body, its program text checked.

    Raises:
        InvalidRequestError, InvalidWeightError, InvalidValueError: it is not of the documented form.
        ProgramError: a rule or a declaration is wrong in itself.
    """
    body = check_object(decoded, "the body", TRANSACTION_FIELDS)
    facts = check_entries(body.get("facts", []), "facts", FACT_FIELDS, ("relation", "tuples"))
    rules = check_entries(body.get("rules", []), "rules", RULE_FIELDS, ("rule",))
    mode = body.get("mode", "zset")
    if not isinstance(mode, str):
        raise InvalidRequestError(f'mode must be "zset" or "set", not {shown(mode)}')
    transaction = Transaction.parse(
        facts,
        rules,
        _declarations(body.get("declarations", "")),
        mode,
        dry_run,
        return_delta,
        _list(body.get("undeclare", []), "undeclare"),
    )
    return check_program(transaction)


def facts_from_json(decoded: Any, *, mode: str, dry_run: bool, return_delta: bool) -> Transaction:
    """The transaction of a `POST /v1/facts` body: one change of facts, or a list of them."""
    if isinstance(decoded, list):
        facts = check_entries(decoded, "the body", FACT_FIELDS, ("relation", "tuples"))
    else:
        facts = [check_object(decoded, "the body", FACT_FIELDS, ("relation", "tuples"))]
    return Transaction.parse(facts, (), "", mode, dry_run, return_delta)


def rules_from_json(decoded: Any, *, mode: str, dry_run: bool, return_delta: bool) -> Transaction:
    """The transaction of a `POST /v1/rules` body: one rule, a list of rules, or a program.

    Raises: as `transaction_from_json`.
    """
    if isinstance(decoded, dict) and "program" in decoded:
        body = check_object(decoded, "the body", PROGRAM_FIELDS, ("program",))
        if not isinstance(body["program"], str):
            raise InvalidRequestError(f'"program" must be the program\'s text, not {shown(body["program"])}')
        weight = check_weight(body.get("weight", 1), "the body")
        return program_transaction(
            body["program"], weight, mode=mode, dry_run=dry_run, return_delta=return_delta, where="program"
        )
    if isinstance(decoded, list):
        rules = check_entries(decoded, "the body", RULE_FIELDS, ("rule",))
    else:
        rules = [check_object(decoded, "the body", RULE_FIELDS, ("rule",))]
    return check_program(Transaction.parse((), rules, "", mode, dry_run, return_delta))


def program_transaction(
    text: str, weight: int, *, mode: str, dry_run: bool, return_delta: bool, where: str = "the body"
) -> Transaction:
    """A whole program as a transaction: its facts and rules with `weight`, and its declarations; these are added, or
    withdrawn if the weight is negative.

    Raises:
        ProgramError: the text is no program, or a rule in it is unsafe.
        UnsupportedFeatureError: it wants to read files.
    """
    program = with_place(where, lambda: _checked_program(text))
    tuples: dict[str, list[list[Any]]] = {}
    for fact in program.facts:
        row = [term.value for term in fact.terms if isinstance(term, Constant)]
        tuples.setdefault(fact.relation, []).append(row)
    # The rules that one clause became share its span: the clause is sent once, and twice if it stands there twice.
    clauses = [_source(text, span) for span in dict.fromkeys(rule.span for rule in program.rules)]
    return Transaction.parse(
        [{"relation": relation, "tuples": rows, "weight": weight} for relation, rows in tuples.items()],
        [{"rule": clause, "weight": weight} for clause in clauses],
        "\n".join(map(_declaration_text, program.declarations)) if weight > 0 else "",
        mode,
        dry_run,
        return_delta,
        [declaration.relation for declaration in program.declarations] if weight < 0 else [],
    )


def _checked_program(text: str) -> ProgramText:
    program = with_constant_facts(parse_program(text))
    for rule in program.rules:
        check_rule(rule)
    for directive in program.directives:
        if directive.kind == "input":
            raise UnsupportedFeatureError(
                f"a program that comes over HTTP cannot read files: leave .input out, and send the facts of "
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


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidRequestError(f"{where} must be a list, not {shown(value)}")
    return value


def _declaration_text(declaration: Declaration) -> str:
    """Names and types, spelt out, and what the relation means: an alias is not known outside of its program, and
    the other qualifiers only say how Souffle is to store or to write the relation."""
    kept = (CONSTRAINT,) if declaration.is_constraint else ()
    return format_declaration(replace(declaration, qualifiers=kept))


def _declarations(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(text, str) for text in value):
        return "\n".join(value)
    raise InvalidRequestError("declarations must be program text, or a list of such texts")


def check_program(transaction: Transaction) -> Transaction:
    """The transaction itself, when its rules and declarations parse and each rule is safe.

    Schemas are not looked at: they depend on what the log holds before this transaction, so that is the
    engine's.

    Raises:
        ProgramError: with `where`, the place in the request's body.
    """
    if transaction.declarations:
        with_place("declarations", lambda: parse_declarations(transaction.declarations))
    for i, change in enumerate(transaction.rules):
        with_place(f"rules[{i}].rule", lambda text=change.rule: _check_rules(text))  # type: ignore[misc]
    return transaction


def _check_rules(text: str) -> None:
    for rule in parse_rules(text):
        check_rule(rule)


def with_place(where: str, work: Callable[[], T]) -> T:
    """`work()`; an error that it raises says where in the body the fault is."""
    try:
        return work()
    except ZedlogError as error:
        error.detail.setdefault("where", where)
        raise
