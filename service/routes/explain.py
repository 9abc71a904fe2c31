"""`POST /v1/explain`: why a tuple holds, why it does not, and why it changed (docs/http.md)."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from engine.errors import (
    ArityError,
    BudgetExceededError,
    EvaluationCancelledError,
    InvalidCursorError,
    InvalidValueError,
    ProgramSyntaxError,
    TypeMismatchError,
    UnknownPrefixError,
    UnknownRelationError,
)
from engine.explain.rendering import as_mermaid
from engine.explain.rendering_answer import answer_text
from service.access.roles import needs
from service.body import read_json
from service.context import service_of
from service.describe import BODY_ERRORS, READ_ERRORS, json_body, problems
from service.evaluation import Deadline, until_gone
from service.explain_models import ExplainBody, Explanation
from service.explaining import explanation
from service.formats import JSON, json_response, negotiate
from service.parameters import only_known_parameters, seconds_allowed
from service.principal import ForbiddenError, principal_of
from service.problems import InvalidParameterError
from service.validation import read_as

router = APIRouter(tags=["explain"], dependencies=[Depends(only_known_parameters)])

TEXT = "text/plain; charset=utf-8"
_FORMAT = Query(description="`text`: a tree; `mermaid`: a diagram of a proof; by default JSON.")
_EXAMPLES = {
    "why": {"tuple": 'tc("a", "d")'},
    "the tuple as values": {"relation": "tc", "tuple": ["a", "d"]},
    "all ways": {"tuple": 'tc("a", "d")', "all": True, "limit": 10},
    "why not": {"tuple": 'tc("d", "a")', "repairs": 1},
    "why it changed": {"tuple": 'tc("a", "d")', "changed_at": 7},
}


@router.post(
    "/v1/explain",
    summary="Explain why a tuple holds, or does not, or changed",
    response_model=Explanation,
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
        **problems(
            *BODY_ERRORS,
            InvalidValueError,
            ProgramSyntaxError,
            ArityError,
            TypeMismatchError,
            UnknownPrefixError,
            UnknownRelationError,
            BudgetExceededError,
            EvaluationCancelledError,
            InvalidCursorError,
            ForbiddenError,
            *READ_ERRORS,
        ),
    },
    openapi_extra=needs("reader") | json_body(ExplainBody, _EXAMPLES),
    operation_id="postExplain",
)
async def post_explain(
    request: Request, format: Annotated[Literal["json", "text", "mermaid"], _FORMAT] = "json"
) -> Response:
    """For a tuple that holds, a proof of least height: `nodes` by their ids, each with the rule, the substitution and
    the steps that it rests on, down to facts. A node of the kind `open` was not followed, because of `size`; ask for it
    with `node`. With `all`, the ways to derive the tuple, page by page. For a tuple that does not hold, how far each
    rule gets, and the smallest changes of facts that would make it hold, each tried by a dry run. With `changed_at`,
    what came and went with the tuple at that epoch.

    Reads one epoch, without the engine (a dry run goes through the log). It is refused with `budget_exceeded` if it
    takes longer than `timeout`, or reads more tuples than the service allows to a query; but where that ends the search
    for repairs, the answer has the reasons and the repairs that were found, and says so in `search.limit`.
    """
    negotiate(request, (JSON,) if format == "json" else ("text/plain",))
    service = service_of(request)
    body = read_as(ExplainBody, await read_json(request, service.settings.max_body_bytes))
    deadline = Deadline(seconds_allowed(service.settings, body.timeout))
    work = deadline.hold(explanation(service, principal_of(request), body, deadline))
    found = await until_gone(request, work)
    if format == "json":
        return json_response(found)
    headers = {"Zedlog-Epoch": str(found["epoch"]), "Zedlog-Token": found["token"]}
    if found.get("cursor"):
        headers["Zedlog-Cursor"] = found["cursor"]
    if format == "text":
        return Response(answer_text(found), media_type=TEXT, headers=headers)
    if "nodes" not in found:
        raise InvalidParameterError(
            "format=mermaid draws the proof of a tuple that holds; this answer has none, ask for json or text",
            parameter="format",
        )
    return Response(as_mermaid(found), media_type=TEXT, headers=headers)
