"""How a setting is declared, shown and refused; the command lines, the environment and the documents share it.

A setting is a field of a pydantic-settings class. Its annotation says all about it: how text is read (`Typed`), what it
is for (`Field(description=...)`), and, where a command line has it as an option, how it is shown there (`Shown`). Its
environment variable is `ZEDLOG_` and its name. A value that is given by name takes precedence over the environment.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from pydantic import BeforeValidator, ByteSize, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from engine.errors import InvalidRequestError, shown
from engine.maintenance.limits import parse_size, parse_whole

PREFIX = "ZEDLOG_"
S = TypeVar("S", bound=BaseSettings)


@dataclass(frozen=True, slots=True)
class Shown:
    """How a command line shows a setting.

    metavar: the placeholder for the value. panel: the heading under which it is listed. usual: its default in words, if
    the value itself does not say it. flag: the option's name, if that is not the field's. repeated: it may be given
    several times; the environment variable has all of them in one value, separated by commas.
    """

    metavar: str
    panel: str
    usual: str | None = None
    flag: str | None = None
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Option:
    """A setting, described for people. The fields about the command line are empty if no command has it as an
    option. is_switch: the option takes no value; it says yes.
    """

    field: str
    variable: str
    what: str
    usual: str
    flag: str = ""
    metavar: str = ""
    panel: str = ""
    repeated: bool = False
    is_switch: bool = False

    @property
    def help(self) -> str:
        return f"{self.what} (default: {self.usual})"

    @property
    def name(self) -> str:
        return f"{self.flag} ({self.variable})" if self.flag else self.variable


def options(settings: type[BaseSettings]) -> Iterator[Option]:
    """The settings of a class, in its order."""
    for name, field in settings.model_fields.items():
        assert field.description, "every setting says what it is for"
        plain = Option(name, PREFIX + name.upper(), field.description, _in_words(field))
        view = next((mark for mark in field.metadata if isinstance(mark, Shown)), None)
        if view is None:
            yield plain
            continue
        yield replace(
            plain,
            usual=view.usual or plain.usual,
            flag=f"--{view.flag or name.replace('_', '-')}",
            metavar=view.metavar,
            panel=view.panel,
            repeated=view.repeated,
            is_switch=field.annotation is bool,
        )


def read_settings(settings: type[S], given: Mapping[str, str | Sequence[str]]) -> S:
    """The settings that a command line gives as text; the others come from the environment.

    Raises:
        InvalidRequestError: one cannot be read; the message names its option and its variable.
    """
    known = {option.field: option for option in options(settings)}
    values: dict[str, Any] = {name: as_variable(known[name], value) for name, value in given.items()}
    try:
        return settings(**values)
    except ValidationError as error:
        raise InvalidRequestError("; ".join(_refusal(one, known) for one in error.errors())) from None


def as_variable(option: Option, value: str | Sequence[str]) -> str:
    """The value given to an option, as a value of its variable. The values of a repeated option are added to those
    already there.
    """
    if isinstance(value, str):
        return value
    return ",".join(filter(None, (os.environ.get(option.variable), *value)))


def _refusal(error: Mapping[str, Any], known: Mapping[str, Option]) -> str:
    cause = error.get("ctx", {}).get("error")
    message = str(cause or f"{shown(error['input'])}: {error['msg']}")
    return f"{known[str(error['loc'][0])].name}: {message}" if error["loc"] else message


def _in_words(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is None or value == frozenset():
        return "none"
    if SIZE in field.metadata:
        return ByteSize(value).human_readable().replace(".0", "")
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


# ---- how a value is read


def typed(parse: Callable[[str], object]) -> BeforeValidator:
    """A validator that has `parse` read a setting as text, also if a program gives a number."""

    def read(value: object) -> object:
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            return value
        try:
            return parse(str(value))
        except InvalidRequestError as error:
            raise ValueError(error.message) from None

    return BeforeValidator(read)


def whole(least: int, most: int | None = None) -> BeforeValidator:
    """A whole number in a range."""
    return typed(partial(parse_whole, least=least, most=most))


def seconds(span: str, fits: Callable[[float], bool]) -> BeforeValidator:
    """A time that fits; `span` says what does."""

    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not fits(number):
            raise InvalidRequestError(f"{shown(text)} is not a number of seconds {span}")
        return number

    return typed(parse)


def one_of(what: str, choices: Sequence[str]) -> BeforeValidator:
    """One of some words."""

    def parse(text: str) -> str:
        if text not in choices:
            raise InvalidRequestError(f"{shown(text)} is not {what}; choose one of {', '.join(choices)}")
        return text

    return typed(parse)


SIZE = typed(parse_size)
"""A number of bytes."""
