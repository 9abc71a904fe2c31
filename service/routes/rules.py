"""`/v1/rules`: add rules as text or as a whole program, list them, and remove them by id."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request
from starlette.responses import Response

from engine.data.transaction import RuleChange, Transaction
from engine.database.epoch import RuleInfo
from engine.errors import UnknownRuleError, did_you_mean, shown
from engine.language.prefixes import Shortener
from engine.storage.snapshot import Snapshot
from service.access.rights import visible_declarations, visible_rules
from service.access.roles import needs
from service.body import JSON_TYPES, decode_json, decode_text, media_type, off_loop, read_body
from service.changes import program_transaction, rules_from_json
from service.context import service_of
from service.describe import READ_ERRORS, STATE_ERRORS, WRITE_ERRORS, body_of, problems
from service.formats import answers_json, json_response
from service.models import RuleAt, Rules, TransactionResult
from service.parameters import AsOf, AtLeast, ShortenIris, SourceName, Write, only_known_parameters
from service.principal import Principal, principal_of
from service.problems import InvalidParameterError, NotAcceptableError, near
from service.reading import pin, prefixes_for
from service.routes.transactions import ACCEPTED, COMMITTED, Mode
from service.submission import submit

router = APIRouter(tags=["rules"], dependencies=[Depends(only_known_parameters), Depends(answers_json)])

TEXT = "text/plain"
RuleId = Annotated[str, Path(description="The id that the list of rules shows.", examples=["r5f0c1d2e3a4b"])]

_ONE_RULE = {"$ref": "#/components/schemas/RuleChange"}
_SCHEMA = {
    "oneOf": [
        _ONE_RULE,
        {"type": "array", "items": _ONE_RULE},
        {"$ref": "#/components/schemas/ProgramChange"},
    ]
}
_PROGRAM = ".decl edge(x: symbol, y: symbol)\ntc(x, y) :- edge(x, y).\ntc(x, z) :- tc(x, y), edge(y, z).\n"


@router.post(
    "/v1/rules",
    summary="Add or remove rules",
    response_model=TransactionResult,
    responses={200: COMMITTED, 202: ACCEPTED, **problems(*WRITE_ERRORS)},
    openapi_extra=needs("writer")
    | body_of(
        _SCHEMA,
        {
            "add": {"rule": "tc(x, y) :- edge(x, y)."},
            "remove": {"rule": "tc(x, y) :- edge(x, y).", "weight": -1},
            "program": {"program": _PROGRAM},
        },
        {TEXT: {"schema": {"type": "string"}, "examples": {"program": {"value": _PROGRAM}}}},
    ),
    operation_id="postRules",
)
async def post_rules(
    request: Request, options: Write, mode: Mode = "zset", source: SourceName = None
) -> Response:
    """One rule, a list of rules, or a program, as one transaction. A program may also hold declarations and facts; a
    body of `text/plain` is a program that is added. Rules that differ only in the names of their variables are the same
    rule.
    """
    started = time.perf_counter()
    service = service_of(request)
    kind = media_type(request, (*JSON_TYPES, TEXT))
    body = await read_body(request, service.settings.max_body_bytes)

    prefixes = await prefixes_for(service, body.decode(errors="replace"))

    def work() -> Transaction:
        how: dict[str, Any] = {"mode": mode, "dry_run": options.dry_run, "return_delta": options.return_delta}
        how["prefixes"] = prefixes
        if kind == TEXT:
            return program_transaction(decode_text(body), 1, **how).told(source=source)
        return rules_from_json(decode_json(body), **how).told(source=source)

    return await submit(service, await off_loop(len(body), work), options, started, principal_of(request))


@router.get(
    "/v1/rules",
    summary="List the rules",
    response_model=Rules,
    responses=problems(*READ_ERRORS),
    openapi_extra=needs("reader"),
    operation_id="getRules",
)
async def get_rules(
    request: Request, at_least: AtLeast = None, as_of: AsOf = None, prefixes: ShortenIris = False
) -> Response:
    """All rules of weight > 0, and the declarations in force; for a token that may read only some relations, those that
    name no others.
    """
    snapshot = await pin(service_of(request), at_least, as_of)
    principal = principal_of(request)
    shorten = Shortener(snapshot.prefixes).text if prefixes else str
    return json_response(
        {
            "rules": [_rule(rule, shorten) for rule in visible_rules(principal, snapshot.rules)],
            "declarations": visible_declarations(principal, snapshot.declarations),
            "epoch": snapshot.epoch,
            "token": snapshot.token,
        }
    )


@router.get(
    "/v1/rules/{rule_id}",
    summary="One rule",
    response_model=RuleAt,
    responses=problems(UnknownRuleError, *READ_ERRORS),
    openapi_extra=needs("reader"),
    operation_id="getRule",
)
async def get_rule(
    request: Request, rule_id: RuleId, at_least: AtLeast = None, as_of: AsOf = None
) -> Response:
    """A rule by its id."""
    snapshot = await pin(service_of(request), at_least, as_of)
    return json_response(
        {
            **_rule(_find(snapshot, rule_id, principal_of(request))),
            "epoch": snapshot.epoch,
            "token": snapshot.token,
        }
    )


@router.delete(
    "/v1/rules/{rule_id}",
    summary="Remove a rule once",
    response_model=TransactionResult,
    responses={
        200: COMMITTED,
        202: ACCEPTED,
        **problems(UnknownRuleError, InvalidParameterError, NotAcceptableError, *STATE_ERRORS),
    },
    openapi_extra=needs("writer"),
    operation_id="deleteRule",
)
async def delete_rule(request: Request, rule_id: RuleId, options: Write) -> Response:
    """Takes 1 from the rule's weight: a rule that was added twice stays. 409 if another transaction has removed the
    rule between the look-up and this change.
    """
    started = time.perf_counter()
    service = service_of(request)
    rule = _find(await service.client.snapshot(), rule_id, principal_of(request))
    transaction = Transaction(
        rules=(RuleChange(rule.canonical, -1),), dry_run=options.dry_run, return_delta=options.return_delta
    )
    return await submit(service, transaction, options, started, principal_of(request))


def _rule(rule: RuleInfo, shorten: Callable[[str], str] = str) -> dict[str, Any]:
    return {"id": rule.id, "rule": shorten(rule.text), "canonical": rule.canonical, "weight": rule.weight}


def _find(snapshot: Snapshot, rule_id: str, principal: Principal) -> RuleInfo:
    rules = visible_rules(principal, snapshot.rules)
    for rule in rules:
        if rule.id == rule_id:
            return rule
    names = near(rule_id, [rule.id for rule in rules])
    raise UnknownRuleError(
        f"there is no rule with the id {shown(rule_id)} in epoch {snapshot.epoch}.{did_you_mean(names)}",
        rule=rule_id,
        near=names,
    )
