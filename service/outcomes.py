"""Outcomes as a principal may see them; what it is, is decided in service/access/rights.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from service.access.rights import visible_problem, visible_result
from service.describe import summary
from service.principal import Principal
from service.problems import STATUS


def result_for(principal: Principal, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The result of a transaction."""
    if principal.reads is None and principal.rows is None:
        return body
    return visible_result(principal, body)


def problem_for(principal: Principal, problem: Mapping[str, Any]) -> Mapping[str, Any]:
    """A refusal, `ZedlogError.problem()`."""
    if principal.reads is None:
        return problem
    code = problem["code"]
    meaning = next((summary(error) for error in STATUS if error.code == code), "The transaction was refused.")
    return visible_problem(principal, problem, meaning)
