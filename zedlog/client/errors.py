"""What can go wrong between a program and a service.

`ServiceError`: the service answered, but not with what was asked for. It has the `status`, the stable `code`
(docs/http.md lists them), the `detail` in words, and the whole `problem` document with the fields of that error. Each
class below it stands for a family of codes, so that a program can catch what it can react to. `Unreachable`: there was
no answer.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


class ClientError(Exception):
    """The root of what the client raises."""


class Unreachable(ClientError):
    """No service answers at the URL, or the connection was lost and did not come back."""


class ServiceError(ClientError):
    """The service answered with a problem document (RFC 9457).

    `replayed`: this is the answer that an earlier request with the same Idempotency-Key got.
    """

    def __init__(self, status: int, problem: Json, *, replayed: bool = False) -> None:
        self.status = status
        self.problem = problem
        self.replayed = replayed
        self.detail = str(problem.get("detail") or problem.get("title") or f"status {status}")
        super().__init__(self.detail)

    @property
    def code(self) -> str:
        return str(self.problem.get("code", f"http_{self.status}"))


class InvalidRequest(ServiceError):
    """400, 405, 406, 413, 415: the request is not one that the service understands."""


class ProgramFault(ServiceError):
    """Something is wrong with program text; `rendered` shows the line with a caret under the fault."""

    @property
    def line(self) -> int | None:
        return self.problem.get("line")

    @property
    def column(self) -> int | None:
        return self.problem.get("column")

    @property
    def rendered(self) -> str:
        return str(self.problem.get("rendered") or self.detail)


class Unauthorized(ServiceError):
    """401: the service asks for a token, and has got none or a wrong one."""


class Forbidden(ServiceError):
    """403: the token may not do this."""


class NotFound(ServiceError):
    """404: no such relation, rule, transaction, job, epoch and so on; `code` says which."""


class Conflict(ServiceError):
    """409: right in itself, but not for the present state of the database."""


class NegativeWeight(Conflict):
    """The transaction would take a weight below zero: it removes what is not there. `tuples` are the first ones."""

    @property
    def tuples(self) -> list[Any]:
        return list(self.problem.get("tuples") or ())


class ConstraintViolated(Conflict):
    """A relation that must stay empty would hold these `tuples`."""

    @property
    def relation(self) -> str:
        return str(self.problem.get("relation"))

    @property
    def tuples(self) -> list[Any]:
        return list(self.problem.get("tuples") or ())


class Gap(ServiceError):
    """410: changes after the position are no longer kept. Begin again with the state (`snapshot=True`)."""

    @property
    def oldest(self) -> int | None:
        """The oldest epoch that can be read."""
        return self.problem.get("oldest")

    @property
    def newest(self) -> int | None:
        return self.problem.get("newest")


class BudgetExceeded(ServiceError):
    """The evaluation outgrew its limits of time or tuples."""


class RateLimited(ServiceError):
    """429: the token has made more requests than its rate allows."""


class Unavailable(ServiceError):
    """503: the storage, the engine or Spark is away at the moment."""


class ServerFault(ServiceError):
    """500 and the like: a fault of the service itself."""


_BY_CODE: dict[str, type[ServiceError]] = {
    **dict.fromkeys(
        (
            "program_error",
            "syntax_error",
            "sparql_syntax",
            "sparql_unsupported",
            "unknown_prefix",
            "arity_mismatch",
            "type_mismatch",
            "unsafe_rule",
            "declaration_conflict",
            "unsupported_feature",
            "not_stratified",
        ),
        ProgramFault,
    ),
    "negative_weight": NegativeWeight,
    "constraint_violated": ConstraintViolated,
    "gap": Gap,
    "budget_exceeded": BudgetExceeded,
}
_BY_STATUS: dict[int, type[ServiceError]] = {
    **dict.fromkeys((400, 405, 406, 413, 415), InvalidRequest),
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    429: RateLimited,
    503: Unavailable,
}


def error_of(status: int, problem: Json, *, replayed: bool = False) -> ServiceError:
    """The error for an answer with this status and document."""
    kind = _BY_CODE.get(str(problem.get("code"))) or _BY_STATUS.get(status)
    if kind is None:
        kind = ServerFault if status >= 500 else ServiceError
    return kind(status, problem, replayed=replayed)
