"""What an `.input` or `.output` directive asks for, checked: the source or target, and the form of its lines.

In: a directive of the syntax tree. Out: a `Layout`. Always: a parameter that would have no effect is refused, with
its place in the program, so that no option is silently ignored. Names, defaults and meanings are Souffle's.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from engine.errors import DeclarationError, UnsupportedFeatureError
from engine.language.schema import Schema
from engine.language.syntax import Directive

FILE, STDIN, STDOUT = "file", "stdin", "stdout"

_PARAMETERS = {
    "input": ("IO", "filename", "delimiter", "headers", "rfc4180", "columns"),
    "output": ("IO", "filename", "delimiter", "headers", "rfc4180", "compress"),
    "printsize": ("IO",),
}
_CHANNELS = {"input": (FILE, STDIN), "output": (FILE, STDOUT), "printsize": ("stdoutprintsize",)}
_SUFFIXES = {"input": ".facts", "output": ".csv", "printsize": ""}
_BOOLS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Layout:
    """How the tuples of one relation are written in a text.

    channel: `file`, `stdin` or `stdout`. filename: by default the relation's name with `.facts` or `.csv`. columns: the
    fields to take, from 0, in the order of the relation's columns; empty means the first ones, and then a line must not
    have more. rfc4180: fields in double quotes may hold anything.
    """

    filename: str
    channel: str = FILE
    delimiter: str = "\t"
    headers: bool = False
    rfc4180: bool = False
    columns: tuple[int, ...] = ()
    compress: bool = False


def layout_of(directive: Directive, schema: Schema, text: str) -> Layout:
    """The layout that the directive asks for. `text` is the whole program, for the messages.

    Raises:
        UnsupportedFeatureError: Souffle has such a channel, but Zedlog does not.
        DeclarationError: a parameter is unknown, or its value is not allowed.
    """
    return _Reader(directive, schema, text).layout()


class _Reader:
    """One directive, read parameter by parameter."""

    def __init__(self, directive: Directive, schema: Schema, text: str) -> None:
        self._directive, self._schema, self._text = directive, schema, text
        self._given: dict[str, str] = {}
        known = _PARAMETERS[directive.kind]
        for name, value in directive.parameters:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"the known parameters are {', '.join(known)}"
                raise self._wrong(f"unknown parameter {name}; {hint}")
            if name in self._given:
                raise self._wrong(f"the parameter {name} is given twice")
            self._given[name] = value

    def layout(self) -> Layout:
        kind, relation = self._directive.kind, self._directive.relation
        compress = self._flag("compress")
        suffix = _SUFFIXES[kind] + (".gz" if compress else "")
        rfc4180 = self._flag("rfc4180")
        layout = Layout(
            filename=self._given.get("filename", relation + suffix),
            channel=self._channel(),
            delimiter=self._delimiter(rfc4180),
            headers=self._flag("headers"),
            rfc4180=rfc4180,
            columns=self._columns(),
            compress=compress,
        )
        if not layout.filename:
            raise self._wrong("filename must not be empty")
        if layout.channel != FILE:
            for name in ("filename", "compress"):
                if name in self._given:
                    raise self._wrong(f"{name} has no effect with IO={layout.channel}; remove it")
        return layout

    def _channel(self) -> str:
        allowed = _CHANNELS[self._directive.kind]
        channel = self._given.get("IO", allowed[0])
        if channel not in allowed:
            raise UnsupportedFeatureError(
                f".{self._directive.kind} cannot use IO={channel}; it can use {' or '.join(allowed)}",
                text=self._text,
                span=self._directive.span,
            )
        return channel

    def _delimiter(self, rfc4180: bool) -> str:
        delimiter = self._given.get("delimiter", "," if rfc4180 else "\t")
        if not delimiter or "\n" in delimiter or "\r" in delimiter:
            raise self._wrong("the delimiter must have at least one character and no line break")
        if rfc4180 and (len(delimiter) != 1 or delimiter == '"'):
            raise self._wrong("with rfc4180 the delimiter must be one character other than a double quote")
        return delimiter

    def _flag(self, name: str) -> bool:
        value = self._given.get(name, "false")
        if value not in _BOOLS:
            raise self._wrong(f"{name} must be true or false, not {value!r}")
        return _BOOLS[value]

    def _columns(self) -> tuple[int, ...]:
        if "columns" not in self._given:
            return ()
        fields = self._given["columns"].split(":")
        if not all(field.isascii() and field.isdigit() and len(field) < 6 for field in fields):
            raise self._wrong(
                'columns must be numbers from 0 with colons between them, for example columns="0:2"'
            )
        columns = tuple(map(int, fields))
        if len(columns) != self._schema.arity or len(set(columns)) != len(columns):
            raise self._wrong(
                f"{self._schema} needs {self._schema.arity} different columns, not {self._given['columns']!r}"
            )
        return columns

    def _wrong(self, message: str) -> DeclarationError:
        return DeclarationError(message, text=self._text, span=self._directive.span)
