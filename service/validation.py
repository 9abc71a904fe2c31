"""Small JSON bodies: from decoded JSON to the pydantic models that the API's description shows, or a typed error.

Always: the error names the field and shows the value, and only the first fault is reported. Unknown fields are reported
before anything else, because a misspelt field is also missing. Tuples are not checked here (`Transaction.parse` does
that).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from engine.data.transaction import check_weight
from engine.errors import InvalidRequestError, did_you_mean, shown
from service.problems import near

M = TypeVar("M", bound=BaseModel)
BODY = "the body"
_MUST = {
    "string_type": "be a string",
    "string_too_short": "not be empty",
    "bool_type": "be true or false",
    "int_type": "be an integer",
    "list_type": "be a list",
    "too_short": "not be empty",
}


def must(text: str) -> WrapValidator:
    """What a field must be, in plain words, instead of pydantic's messages about each part of its type."""

    def check(value: Any, inner: ValidatorFunctionWrapHandler) -> Any:
        try:
            return inner(value)
        except ValidationError:
            raise ValueError(text) from None

    return WrapValidator(check)


def read_as(model: type[M], decoded: Any, where: str = BODY) -> M:
    """`decoded` as an instance of the model.

    Raises:
        InvalidRequestError: a field is unknown or missing, or has the wrong type or form.
        InvalidWeightError: a weight is not allowed.
    """
    try:
        return model.model_validate(decoded)
    except ValidationError as error:
        found = error.errors(include_url=False)
        first = next((one for one in found if one["type"] == "extra_forbidden"), found[0])
        raise _error(model, first, decoded, where) from None


def _error(model: type[BaseModel], fault: Mapping[str, Any], decoded: Any, where: str) -> InvalidRequestError:
    kind, loc = fault["type"], _path(fault["loc"], decoded)
    field = next((part for part in reversed(loc) if isinstance(part, str)), None)
    detail = {} if field is None else {"field": field}
    if kind in ("model_type", "extra_forbidden", "missing"):
        inside = loc if kind == "model_type" else loc[:-1]
        place, known = _named(inside, where), list(_model_at(model, inside).model_fields)
        listed = ", ".join(map(shown, known))
        if kind == "model_type":
            return InvalidRequestError(
                f"{place} must be a JSON object; it may have the fields {listed}", **detail
            )
        if kind == "missing":
            return InvalidRequestError(f"{place} lacks the field {shown(field)}", **detail)
        hint = did_you_mean(near(str(field), known))
        return InvalidRequestError(
            f"{place} has an unknown field {shown(field)}; it may have {listed}.{hint}", **detail
        )
    if field == "weight":
        check_weight(fault["input"], _named(loc[:-1], where))
    return InvalidRequestError(
        f"{_named(loc, where)} must {_must(fault)}, not {shown(fault['input'])}", **detail
    )


def _must(fault: Mapping[str, Any]) -> str:
    if fault["type"] == "value_error":
        return str(fault["ctx"]["error"])
    plain = str(fault["msg"]).removeprefix("Input should ").replace("'", '"')
    return _MUST.get(fault["type"], plain)


def _path(loc: Sequence[Any], decoded: Any) -> tuple[int | str, ...]:
    """The part of a location that is in the body: pydantic also names the members of a union."""
    path: list[int | str] = []
    for part in loc:
        path.append(part)
        if not isinstance(decoded, dict | list):
            return tuple(path[:-1])
        if isinstance(decoded, dict) != isinstance(part, str) or (
            isinstance(decoded, dict) and part not in decoded
        ):
            break
        decoded = decoded[part]
    return tuple(path)


def _named(path: Sequence[int | str], where: str) -> str:
    text = "" if where == BODY and path else where
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _model_at(model: type[BaseModel], path: Sequence[int | str]) -> type[BaseModel]:
    """The model of the object at a path."""
    for part in path:
        if isinstance(part, str):
            model = next(_models_in(model.model_fields[part].annotation))
    return model


def _models_in(kind: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    for part in get_args(kind):
        yield from _models_in(part)
