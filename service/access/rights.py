"""What a principal may change, ask and see, of transactions, queries, rules, outcomes and jobs.

In: what a call is about to do, or to answer. Out: the same, or ForbiddenError; of answers, the part that may be seen.
Always: what does not follow from relations that the principal may read is left out, not made unreadable: counts, costs
and texts of errors would tell of other relations too. A principal that may read and change everything costs one
comparison.

What cannot be kept from someone who may change a relation is what a refusal says by being one: that a fact was there
(a negative weight), or that a constraint would be broken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import starmap
from typing import Any, Final

from engine.bulk.request import FACTS, ExportRequest, ImportRequest
from engine.bulk.sources import Source
from engine.data.transaction import Transaction
from engine.database.epoch import RuleInfo
from engine.errors import (
    ConstraintViolationError,
    NegativeWeightError,
    SourcedFactError,
    WeightOverflowError,
    ZedlogError,
    shown,
)
from engine.language.canonical import format_declaration
from engine.language.parser import parse_declarations, parse_prefixes, parse_query, parse_rules
from engine.language.prefixes import ANY_PREFIX, format_prefix, label_of
from engine.language.schema import Schema
from engine.language.syntax import Atom, FunctorCall, Literal, Query, Rule, Term, walk
from engine.storage.jobs import Job
from service.principal import ForbiddenError, Principal

_NUMBERED: Final = "ord"
_OF_ITS_RELATION: Final = frozenset(
    error.code
    for error in (NegativeWeightError, SourcedFactError, WeightOverflowError, ConstraintViolationError)
)
"""Refusals whose text and details name one relation, and its tuples."""
_EPOCH: Final = ("epoch", "time", "transactions", "strategy", "placement", "elapsed_ms")
_ROWS: Final = ("samples", "rejects")


# ---- before something is done


def check_transaction(principal: Principal, transaction: Transaction) -> None:
    """Raise ForbiddenError unless it may change all that the transaction changes, and read all that its rules read."""
    if not principal.is_narrowed:
        return
    if transaction.rollback is not None or (
        transaction.replaces == "source" and principal.writes is not None
    ):
        raise ForbiddenError(
            "a rollback, or the replacement of all that a source asserts, may change any relation, and "
            f"{shown(principal.name)} may change only some; "
            'with "replaces": "relations" only those that "facts" names are changed',
            principal=principal.name,
        )
    principal.check_write(change.relation for change in transaction.facts)
    for change in transaction.rules:
        for rule in parse_rules(change.rule, ANY_PREFIX):
            check_rule_change(principal, rule)
    withdrawn = [name for name in transaction.undeclare if label_of(name) is None]
    principal.check_write(withdrawn)
    if transaction.declarations:
        principal.check_write(d.relation for d in parse_declarations(transaction.declarations))
    prefixes = len(withdrawn) < len(transaction.undeclare) or parse_prefixes(transaction.declarations)
    if prefixes and principal.writes is not None:
        raise ForbiddenError(
            f"prefixes are those of the whole database, and {shown(principal.name)} may change only some relations; "
            "a program may write whole IRIs instead",
            principal=principal.name,
        )


def check_rule_change(principal: Principal, rule: Rule) -> None:
    """Raise ForbiddenError unless it may write the head and read the body."""
    principal.check_write([rule.head.relation])
    _check_reads(principal, *rule.head.terms, *rule.body)


def check_query(principal: Principal, query: Query) -> None:
    """Raise ForbiddenError unless it may read all that the query reads."""
    # The head's name is only a label.
    head = () if query.head is None else query.head.terms
    _check_reads(principal, *head, *(literal for body in query.bodies for literal in body))


def _check_reads(principal: Principal, *nodes: Literal | Term) -> None:
    if principal.reads is None:
        return
    principal.check_read(relations_of(*nodes))
    if any(
        isinstance(part, FunctorCall) and part.functor == _NUMBERED for node in nodes for part in walk(node)
    ):
        raise ForbiddenError(
            f"{_NUMBERED} gives the numbers of symbols, which tell whether any relation holds them, so it is only for "
            "those who may read all relations",
            principal=principal.name,
        )


def check_job(principal: Principal, request: ImportRequest | ExportRequest) -> None:
    """Raise ForbiddenError unless it may change what an import changes, or read what an export reads."""
    if isinstance(request, ExportRequest):
        _check_export(principal, request)
    elif principal.is_narrowed:
        if not request.uploaded:
            raise ForbiddenError(
                "files on the server may hold tuples of any relation, so whoever is narrowed to some relations "
                "imports only uploads",
                principal=principal.name,
            )
        principal.check_write(_imported(request))
        if request.rules is not None:
            principal.check_read(_imported(request))


def _check_export(principal: Principal, request: ExportRequest) -> None:
    if principal.rows is not None:
        raise ForbiddenError(
            f"an export has no limit of rows, so a token with one, of {principal.rows}, may not make exports",
            principal=principal.name,
        )
    if principal.is_narrowed and request.overwrite:
        raise ForbiddenError(
            "a file that is there may be anybody's, so whoever is narrowed to some relations does not overwrite any",
            principal=principal.name,
        )
    _check_exported(principal, request)


def _check_exported(principal: Principal, request: ExportRequest) -> None:
    if request.relation is not None:
        principal.check_read([request.relation])
    else:
        check_query(principal, parse_query(request.query or "", ANY_PREFIX))


def relations_of(*nodes: Literal | Term) -> set[str]:
    """The relations of all atoms, also of negated ones and of those in aggregates."""
    return {part.relation for node in nodes for part in walk(node) if isinstance(part, Atom)}


def _imported(request: ImportRequest) -> set[str]:
    """The relations that an import changes; of uploads, or where the request names them."""
    if request.target is not None:
        return {request.target}
    return {Source("", path).stem for path in request.paths}


# ---- what is seen of it


def visible_schemas(principal: Principal, schemas: Mapping[str, Schema]) -> Mapping[str, Schema]:
    """The relations that it may read."""
    if principal.reads is None:
        return schemas
    return {name: schema for name, schema in schemas.items() if principal.may_read(name)}


def visible_rules(principal: Principal, rules: Iterable[RuleInfo]) -> list[RuleInfo]:
    """The rules of which it may read every relation."""
    return [rule for rule in rules if principal.reads is None or _may_see(principal, rule.canonical)]


def _may_see(principal: Principal, text: str) -> bool:
    return all(
        principal.may_read(name) for rule in parse_rules(text) for name in relations_of(rule.head, *rule.body)
    )


def visible_declarations(principal: Principal, text: str) -> str:
    """The declarations of the relations that it may read, and all prefixes, which say nothing of relations."""
    if principal.reads is None or not text:
        return text
    relations = [
        format_declaration(declaration)
        for declaration in parse_declarations(text)
        if principal.may_read(declaration.relation)
    ]
    return "\n".join([*starmap(format_prefix, parse_prefixes(text).items()), *relations])


def visible_result(principal: Principal, body: Mapping[str, Any]) -> dict[str, Any]:
    """What it may see of the outcome of a transaction, whoever's it is. More rows than it may have in one answer are
    left out, and counted in `delta_rows`."""
    seen = dict(body)
    if principal.reads is not None:
        for part in ("changes", "delta"):
            if part in seen:
                seen[part] = {r: change for r, change in seen[part].items() if principal.may_read(r)}
        # Numbers of derivations, and the relations that were evaluated in an unusual way, tell of all relations.
        seen |= {"cost": {}, "reason": ""} if "cost" in seen else {}
    if principal.rows is not None and "delta" in seen:
        rows = sum(len(part) for change in seen["delta"].values() for part in change.values())
        if rows > principal.rows:
            del seen["delta"]
            seen["delta_rows"] = rows
    return seen


def visible_problem(principal: Principal, problem: Mapping[str, Any], summary: str) -> Mapping[str, Any]:
    """What it may see of a refusal, `ZedlogError.problem()`, whoever's transaction it was.

    summary: what the code of the refusal means.
    """
    if principal.reads is None:
        return problem
    relation, rules = problem.get("relation"), problem.get("rules", ())
    known = [rule for rule in rules if _may_see(principal, rule["rule"])] if _are_rules(rules) else []
    if problem["code"] in _OF_ITS_RELATION and isinstance(relation, str) and principal.may_read(relation):
        return {**problem, **({"rules": known} if "rules" in problem else {})}
    if problem["code"] == NegativeWeightError.code and rules and len(known) == len(rules):
        return problem
    return {
        "code": problem["code"],
        "message": f"{summary} The details are left out, because they may tell of relations that "
        f"{principal.name} may not read.",
    }


def _are_rules(found: Any) -> bool:
    return isinstance(found, list) and all(isinstance(one, Mapping) and "rule" in one for one in found)


def visible_epoch(principal: Principal, summary: Mapping[str, Any]) -> dict[str, Any]:
    """What it may see of the summary of an epoch."""
    if principal.reads is None:
        return dict(summary)
    seen = {name: summary[name] for name in _EPOCH if name in summary}
    changes = summary.get("changes", {})
    return {**seen, "changes": {r: change for r, change in changes.items() if principal.may_read(r)}}


def may_see_job(principal: Principal, job: Job) -> bool:
    """Whether it may know of a job: it may read all that the job reads or changes, or change all that it changes."""
    if not principal.is_narrowed:
        return True
    if job.kind == "import":
        return _may_all(principal, job, "read") or _may_all(principal, job, "write")
    try:
        _check_exported(principal, ExportRequest(**job.request))
    except ZedlogError:
        return False
    return True


def visible_job_result(principal: Principal, job: Job, result: Mapping[str, Any]) -> dict[str, Any]:
    """What it may see of a job's result: rows of the file only if it may read their relations."""
    seen = visible_result(principal, result)
    if principal.reads is not None and job.kind == "import" and not _may_all(principal, job, "read"):
        seen = {name: value for name, value in seen.items() if name not in _ROWS}
    return seen


def _may_all(principal: Principal, job: Job, what: str) -> bool:
    request = ImportRequest.restore(job.request)
    if request.format == FACTS and not request.uploaded:
        # A folder stands for the files in it, which only the engine knows.
        return False
    return all(map(principal.may_read if what == "read" else principal.may_write, _imported(request)))
